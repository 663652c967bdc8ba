"""Turn evidence into a decision: the only entry point of the package.

Every gate and computation runs once, in the order of what each needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor import gates, words
from advisor.assess import accuracy, broken, capacity, coverage, lines, reach, room, speed
from advisor.assess.figures import figures
from advisor.assess.level import service_levels
from advisor.assess.tasks import task_figures
from advisor.case import Case, rivals
from advisor.choice import choose
from advisor.estimate import present
from advisor.evidence import Evidence
from advisor.judge import judge
from advisor.legs.level import miss_text
from advisor.legs.speed import is_confounded
from advisor.policy import Policy
from advisor.rulebook import modules, run
from advisor.verdict import ArmVerdict, Change, Choice, Decision, Gate, Need, Spoiled, TaskFigures

ALWAYS_FLIPS = "another version of engine, driver or checkpoint"


def gate_results(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return the answers of all gates, failures first."""
    found = [gate for module in modules(gates) for gate in module.check(evidence, policy)]
    order = {"fail": 0, "not observed": 1, "pass": 2}
    return tuple(sorted(found, key=lambda gate: order[gate.status]))


def _unspoiled(evidence: Evidence, seen: Sequence[Gate], what: Spoiled) -> Evidence:
    """Return *evidence* without the sweeps of arms that failed a gate on *what*."""
    failed = {gate.arm for gate in seen if gate.status == "fail" and what in gate.spoils}
    sound = tuple(sweep for sweep in evidence.sweeps if sweep.arm not in failed)
    return replace(evidence, sweeps=sound)


def assess(evidence: Evidence, policy: Policy) -> Case:
    """Return the case that *evidence* makes under *policy*: all computed, nothing concluded."""
    shares = reach.shares(evidence)
    gates_seen = gate_results(evidence, policy)
    decoded = _unspoiled(evidence, gates_seen, "decode sweep")
    prefilled = _unspoiled(evidence, gates_seen, "prefill sweep")
    faults = broken.faults(evidence, policy)
    pooled = accuracy.by_workload(evidence, policy)
    speeds = speed.speeds(evidence, shares, policy)
    # Any arm may be chosen, and for its speed or for its
    # capacity: the error is shared. A search is looked at once.
    alpha = policy.alpha / rivals(evidence)
    undivided = capacity.capacities(evidence, policy, level=1 - alpha)
    carried = capacity.capacities(evidence, policy, level=1 - alpha / 2) if speeds else undivided
    return Case(
        evidence=evidence,
        policy=policy,
        shares=shares,
        gates=gates_seen,
        speeds=speeds,
        itl=lines.itl_lines(decoded),
        ttft=lines.ttft_curves(prefilled),
        break_even=lines.break_evens(decoded, shares, policy),
        buckets=accuracy.bucket_results(evidence, policy),
        accuracy=pooled,
        broken=faults.broken,
        suspects=faults.suspects,
        same_answers=accuracy.controls(evidence, policy),
        capacity=carried,
        capacity_undivided=undivided,
        service_levels=service_levels(evidence, policy, carried),
        rooms=room.rooms(evidence, policy),
        reach=reach.reaches(evidence, shares, pooled),
        coverage=coverage.coverages(evidence),
        tasks=task_figures(evidence),
    )


def _caveats(case: Case) -> tuple[str, ...]:
    failed = (f"{gate.name}: {gate.message}." for gate in case.gates if gate.status == "fail")
    lines = (*_gaps(case), *failed, *case.evidence.notes, *_few_starts(case))
    return tuple(dict.fromkeys(lines))


def _gaps(case: Case) -> Iterator[str]:
    """Yield what the evidence as a whole lacks."""
    evidence = case.evidence
    if evidence.kind != "measured":
        yield f"All figures are {evidence.kind}: no server was measured."
    if any(each.gpu_time_share is None for each in evidence.workloads):
        yield (
            "The weights of the mix are the reference's time in turns; how its server's "
            "time was shared is not known."
        )
    known = [each for each in case.capacity if each.agents_per_gpu and each.agents_per_gpu.value]
    searched = {each.arm for each in known}
    is_compared = evidence.reference in searched and len(searched) > 1
    if evidence.deployment.peak_agents is None and is_compared:
        yield (
            "Agents per GPU are known, the GPUs that they save are not: the policy lacks "
            "load.peak_agents, the agents at your peak."
        )
    mine = case.service_level(evidence.reference)
    if mine is not None and mine.state == "no" and not case.is_unmet:
        yield f"{miss_text(mine)}."
    if not evidence.challengers:
        yield "There is one arm only: nothing is compared."


def _few_starts(case: Case) -> Iterator[str]:
    """Yield how often servers were started, the fewest times first, where that is doubtful."""
    of_mix = (each for each in case.speeds if each.workload is None)
    few = [each for each in of_mix if each.doubted is not None]
    for each in sorted(few, key=lambda speed: speed.starts):
        what = f"Each server was started {words.times(each.starts)}"
        if is_confounded(case, each.arm):
            what = "Each arm had one machine"
        yield f"{what}: intervals hold what a start or a machine adds, {case.starts_told()}."


def _shares_that_flip(case: Case, choice: Choice) -> Iterator[str]:
    """Yield the share of server time above which a losing class undoes the gain of the mix.

    A change below zero is a gain, and a gain counts from the policy's least change g on. With a
    share x of a class that changes by c, and the others as they are to each other, at a mean
    change of m, the mix changes by x c + (1 - x) m. That is -g at x = (-g - m) / (c - m).
    """
    if choice.verdict != "use":
        return
    least_gain = -case.policy.min_change
    shares = dict(case.shares)
    changes: dict[str, float] = {}
    for name in shares:
        speed = case.speed(choice.arm, name)
        if speed is not None:
            changes[name] = speed.change.relative.value
    for name, change in changes.items():
        rest = [other for other in changes if other != name]
        weight = sum(shares[other] for other in rest)
        if change <= least_gain or weight <= 0:
            continue
        mean = sum(shares[other] * changes[other] for other in rest) / weight
        if mean < least_gain:
            share = (least_gain - mean) / (change - mean)
            yield f"{name} above {share:.0%} of server time"


def _next_replica(case: Case, choice: Choice) -> Iterator[str]:
    found = case.capacity_of(choice.arm, None)
    if found is not None and found.next_replica_at_agents is not None:
        yield f"a peak of {found.next_replica_at_agents} agents: one more replica"


def _changes(case: Case) -> tuple[Change, ...]:
    """Return every comparison with the interval that decides about it."""
    of_calls = (each for each in case.speeds if each.change.metric != "task_ms")
    found = present(
        case.comparison(each.arm, each.workload, each.change.metric) for each in of_calls
    )
    return tuple(each.change for each in found)


def _tasks(case: Case) -> tuple[TaskFigures, ...]:
    """Return the tasks of every arm, each with its change against the reference."""
    out = []
    for each in case.tasks:
        speed = case.comparison(each.arm, each.workload, "task_ms")
        out.append(replace(each, change=None if speed is None else speed.change))
    return tuple(out)


def _only_reference(case: Case) -> Choice:
    reference = case.evidence.reference
    return Choice(
        arm=reference,
        verdict="test further",
        canary=False,
        headline=f"stay on {reference}: nothing was compared with it",
        runner_up=None,
        why_it_lost=None,
        split_pools="One flag: there is one arm.",
    )


def _verdict_flips(choice: Choice, server: Sequence[ArmVerdict]) -> tuple[str, ...]:
    """Return what would reverse the verdict on the chosen arm.

    The runner-up speaks only where the choice is to stay: the reference has no verdict.
    """
    flips = {each.arm: each.flips for each in server}
    speaker = choice.arm if choice.arm in flips else choice.runner_up
    if speaker is None:
        return ()
    return flips.get(speaker, ())


def decide(evidence: Evidence, policy: Policy | None = None) -> Decision:
    """Return the decision that *evidence* supports under *policy*."""
    case = assess(evidence, policy or Policy())
    findings, skipped = run(case)
    arms = [arm.name for arm in evidence.challengers]
    server = tuple(judge(case, findings, arm, None) for arm in arms)
    classes = tuple(
        judge(case, findings, arm, each.name) for each in evidence.workloads for arm in arms
    )
    choice = choose(case, server, classes) if server else _only_reference(case)
    flips = (
        *_next_replica(case, choice),
        *_shares_that_flip(case, choice),
        *_verdict_flips(choice, server),
        ALWAYS_FLIPS,
    )
    needs: list[Need] = []
    for each in (*server, *classes):
        needs.extend(each.needs)
    return Decision(
        run=evidence.run,
        kind=evidence.kind,
        model=evidence.model.name,
        gpu=evidence.deployment.gpu.name,
        version=evidence.deployment.version,
        reference=evidence.reference,
        choice=choice,
        server=server,
        classes=classes,
        gates=case.gates,
        findings=findings,
        skipped=skipped,
        figures=figures(evidence, case.policy),
        changes=_changes(case),
        tasks=_tasks(case),
        hit_cliffs=room.hit_cliffs(evidence),
        pair_load=evidence.pair_load,
        twin_changes=evidence.twin_changes,
        itl=case.itl,
        ttft=case.ttft,
        break_even=case.break_even,
        accuracy=case.buckets,
        capacity=case.capacity,
        service_levels=case.service_levels,
        coverage=case.coverage,
        needs=tuple(dict.fromkeys(needs)),
        caveats=_caveats(case),
        flips=tuple(dict.fromkeys(flips)),
    )
