"""Turn evidence into a decision: the only entry point of the package.

Every gate and computation runs once, in the order of what each needs.
"""

from collections.abc import Sequence
from dataclasses import replace

from advisor import gates, words
from advisor.assess import accuracy, broken, capacity, coverage, lines, reach, room, speed
from advisor.assess.figures import figures
from advisor.assess.level import service_levels
from advisor.case import Case, rivals
from advisor.choice import choose
from advisor.evidence import Evidence, present
from advisor.judge import judge
from advisor.legs.level import miss_text
from advisor.legs.speed import is_confounded
from advisor.policy import Policy
from advisor.rulebook import modules, run
from advisor.verdict import Change, Choice, Decision, Gate, Spoiled

ALWAYS_FLIPS = "another version of engine, driver or checkpoint"


def gate_results(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return the answers of all gates, failures first."""
    found = [gate for module in modules(gates) for gate in module.check(evidence, policy)]
    order = {"fail": 0, "not observed": 1, "pass": 2}
    return tuple(sorted(found, key=lambda gate: order[gate.status]))


def _unspoiled(evidence: Evidence, seen: Sequence[Gate], what: Spoiled) -> Evidence:
    """Return *evidence* without the sweeps of arms that failed a gate on *what*."""
    failed = {gate.arm for gate in seen if gate.status == "fail" and what in gate.spoils}
    return replace(
        evidence, sweeps=tuple(sweep for sweep in evidence.sweeps if sweep.arm not in failed)
    )


def assess(evidence: Evidence, policy: Policy) -> Case:
    """Return the case that *evidence* makes under *policy*: all computed, nothing concluded."""
    shares = reach.shares(evidence)
    gates_seen = gate_results(evidence, policy)
    decoded, prefilled = (
        _unspoiled(evidence, gates_seen, "decode sweep"),
        _unspoiled(evidence, gates_seen, "prefill sweep"),
    )
    found = broken.faults(evidence, policy)
    judged, speeds = accuracy.by_workload(evidence, policy), speed.speeds(evidence, shares, policy)
    # Any arm may be chosen, and for its speed or for its
    # capacity: the error is shared. A search is looked at once.
    level = 1 - policy.alpha / rivals(evidence) / (2 if speeds else 1)
    carried = capacity.capacities(evidence, policy, level=level)
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
        accuracy=judged,
        broken=found.broken,
        suspects=found.suspects,
        same_answers=accuracy.controls(evidence, policy),
        capacity=carried,
        service_levels=service_levels(evidence, policy, carried),
        rooms=room.rooms(evidence, policy),
        reach=reach.reaches(evidence, shares, judged),
        coverage=coverage.coverages(evidence),
    )


def _caveats(case: Case) -> tuple[str, ...]:
    evidence = case.evidence
    out = []
    if evidence.kind != "measured":
        out.append(f"All figures are {evidence.kind}: no server was measured.")
    if any(each.gpu_time_share is None for each in evidence.workloads):
        out.append(
            "The weights of the mix are the reference's time in turns; how its server's "
            "time was shared is not known."
        )
    if evidence.deployment.peak_agents is None and any(
        each.agents_per_gpu is not None for each in case.capacity
    ):
        out.append(
            "Agents per GPU are known, the GPUs that they save are not: the policy lacks "
            "load.peak_agents, the agents at your peak."
        )
    mine = case.service_level(evidence.reference)
    if mine is not None and mine.state == "no" and not case.is_unmet:
        out.append(f"{miss_text(mine)}.")
    if not evidence.challengers:
        out.append("There is one arm only: nothing is compared.")
    out.extend(f"{gate.name}: {gate.message}." for gate in case.gates if gate.status == "fail")
    few = [
        each for each in case.speeds if each.doubted is not None and each.change.workload is None
    ]
    drawn = (
        "Each arm had one machine"
        if is_confounded(case, each.change.arm)
        else f"Each server was started {words.times(each.starts)}"
        for each in sorted(few, key=lambda each: each.starts)
    )
    started = (
        f"{each}: intervals hold what a start or a machine adds, {case.starts_told()}."
        for each in drawn
    )
    return tuple(dict.fromkeys((*out, *evidence.notes, *started)))


def _shares_that_flip(case: Case, choice: Choice) -> tuple[str, ...]:
    """Return the share of server time above which a losing class undoes the gain of the mix."""
    if choice.verdict != "use":
        return ()
    out = []
    speeds = {name: case.speed(choice.arm, name) for name, _ in case.shares}
    known = {
        name: speed.change.relative.value for name, speed in speeds.items() if speed is not None
    }
    for name, change in known.items():
        rest = [
            (share, known[other])
            for other, share in case.shares
            if other != name and other in known
        ]
        weight = sum(share for share, _ in rest)
        if change <= -case.policy.min_change or weight <= 0:
            continue
        others = sum(share * value for share, value in rest) / weight
        if others < -case.policy.min_change:
            out.append(
                f"{name} above {(-case.policy.min_change - others) / (change - others):.0%} "
                "of server time"
            )
    return tuple(out)


def _next_replica(case: Case, choice: Choice) -> tuple[str, ...]:
    found = case.capacity_of(choice.arm, None)
    return (
        ()
        if found is None or found.next_replica_at_agents is None
        else (f"a peak of {found.next_replica_at_agents} agents: one more replica",)
    )


def _changes(case: Case) -> tuple[Change, ...]:
    """Return every comparison with the interval that decides about it."""
    names = ((each.change.arm, each.change.workload, each.change.metric) for each in case.speeds)
    return tuple(each.change for each in present(case.comparison(*name) for name in names))


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
    # What is chosen first: the runner-up speaks only where the choice is to stay.
    chosen = next(
        (each for name in (choice.arm, choice.runner_up) for each in server if each.arm == name),
        None,
    )
    flips = (
        *_next_replica(case, choice),
        *_shares_that_flip(case, choice),
        *(() if chosen is None else chosen.flips),
        ALWAYS_FLIPS,
    )
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
        pair_load=evidence.pair_load,
        twin_changes=evidence.twin_changes,
        itl=case.itl,
        ttft=case.ttft,
        break_even=case.break_even,
        accuracy=case.buckets,
        capacity=case.capacity,
        service_levels=case.service_levels,
        coverage=case.coverage,
        needs=tuple(dict.fromkeys(need for each in (*server, *classes) for need in each.needs)),
        caveats=_caveats(case),
        flips=tuple(dict.fromkeys(flips)),
    )
