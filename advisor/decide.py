"""Turn evidence into a decision: the only door of the package."""

from collections.abc import Sequence

from advisor import words
from advisor.assess.figures import figures
from advisor.case import Case
from advisor.choice import choose
from advisor.evidence import Evidence
from advisor.judge import judge
from advisor.legs.speed import confounded
from advisor.policy import Policy
from advisor.rulebook import run
from advisor.verdict import ArmVerdict, Change, Choice, Decision, Need
from advisor.whole import assess

ALWAYS_FLIPS = "another version of engine, driver or checkpoint"


def _caveats(case: Case) -> tuple[str, ...]:
    evidence = case.evidence
    out = []
    if evidence.kind != "measured":
        out.append(f"All figures are {evidence.kind}: no server was measured.")
    if any(each.gpu_time_share is None for each in evidence.workloads):
        out.append("The weights of the mix are the reference's time in turns; how its server's time was shared is not known.")
    if evidence.deployment.peak_agents is None and any(each.agents_per_gpu is not None for each in case.capacity):
        out.append("Agents per GPU are known, the GPUs that they save are not: the policy lacks load.peak_agents, the agents at your peak.")
    if not evidence.challengers:
        out.append("There is one arm only: nothing is compared.")
    out.extend(f"{gate.name}: {gate.message}." for gate in case.gates if gate.status == "fail")
    few = [each for each in case.speeds if each.doubted is not None and each.change.workload is None]
    drawn = (
        "Each arm had one machine" if confounded(case, each.change.arm) else f"Each server was started {words.times(each.starts)}"
        for each in sorted(few, key=lambda each: each.starts)
    )
    started = (f"{each}: intervals hold what a start or a machine adds, {case.starts_told()}." for each in drawn)
    return tuple(dict.fromkeys((*out, *evidence.notes, *started)))


def _shares_that_flip(case: Case, choice: Choice) -> tuple[str, ...]:
    """Return the share of server time at which a class that loses would undo the gain of the mix."""
    if choice.verdict != "use":
        return ()
    out = []
    known = {name: speed.change.relative.value for name, _ in case.shares if (speed := case.speed(choice.arm, name)) is not None}
    for name, change in known.items():
        rest = [(share, known[other]) for other, share in case.shares if other != name and other in known]
        weight = sum(share for share, _ in rest)
        if change <= -case.policy.min_change or weight <= 0:
            continue
        others = sum(share * value for share, value in rest) / weight
        if others < -case.policy.min_change:
            out.append(f"{name} above {(-case.policy.min_change - others) / (change - others):.0%} of server time")
    return tuple(out)


def _next_replica(case: Case, choice: Choice) -> tuple[str, ...]:
    found = case.capacity_of(choice.arm, None)
    return (
        ()
        if found is None or found.next_replica_at_agents is None
        else (f"a peak of {found.next_replica_at_agents} agents: one more replica",)
    )


def _needs(verdicts: Sequence[ArmVerdict]) -> tuple[Need, ...]:
    return tuple(dict.fromkeys(need for each in verdicts for need in each.needs))


def _changes(case: Case) -> tuple[Change, ...]:
    """Return every comparison with the interval that decides about it."""
    names = ((each.change.arm, each.change.workload, each.change.metric) for each in case.speeds)
    return tuple(found.change for name in names if (found := case.measured(*name)) is not None)


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
    classes = tuple(judge(case, findings, arm, each.name) for each in evidence.workloads for arm in arms)
    choice = choose(case, server, classes) if server else _only_reference(case)
    # What is chosen first: the runner-up speaks only where the choice is to stay.
    chosen = next((each for name in (choice.arm, choice.runner_up) for each in server if each.arm == name), None)
    flips = (*_next_replica(case, choice), *_shares_that_flip(case, choice), *(() if chosen is None else chosen.flips), ALWAYS_FLIPS)
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
        itl=case.itl,
        ttft=case.ttft,
        break_even=case.break_even,
        accuracy=case.buckets,
        capacity=case.capacity,
        needs=_needs((*server, *classes)),
        caveats=_caveats(case),
        flips=tuple(dict.fromkeys(flips)),
    )
