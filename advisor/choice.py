"""Choose the arm for the whole server, and say why the runner-up lost.

The choice also says whether one configuration is enough or the pool should be split.
"""

import math
from collections.abc import Sequence

from advisor import words
from advisor.assess.coverage import refusal
from advisor.assess.speed import METHOD, between
from advisor.case import Case
from advisor.rules.broken import description
from advisor.verdict import ArmVerdict, Choice, Word

_RANK: dict[Word, int] = {
    "use": 0,
    "calibrate": 1,
    "test further": 2,
    "no difference": 3,
    "avoid": 4,
}


# ratio of contexts up to which two verdicts hold equally far: draws
# move these by a few tokens, and windows are rounded in many ways
ALIKE = 1.02


def _key(case: Case, verdict: ArmVerdict, ends: Sequence[float]) -> tuple[int, float, float, float]:
    """Return what orders verdicts: the word, how far it holds, then what decides."""
    needed = case.gpus_of(verdict.arm, None)
    speed = case.speed(verdict.arm, None, case.decisive)
    rank = _RANK[verdict.verdict]
    reaches = max(each for each in ends if each <= ALIKE * _end(verdict))
    gpus = math.inf if needed is None else needed.value
    change = 0.0 if speed is None else speed.change.relative.value
    if case.decided_by == "gpus":
        return rank, -reaches, gpus, change
    return rank, -reaches, change, gpus


def _end(verdict: ArmVerdict) -> float:
    if verdict.holds_to is None:
        return math.inf
    return verdict.holds_to


def _headline(case: Case, best: ArmVerdict) -> str:
    if best.holds_to is None:
        return _said(case, best, "")
    said = _said(case, best, f" for contexts up to {words.length(best.holds_to)}")
    refused = refusal(case.evidence, best.arm)
    if refused is None:
        return f"{said}; test it further beyond"
    return f"{said}; it takes none above {words.length(refused.to)}"


def _said(case: Case, best: ArmVerdict, to: str) -> str:
    reference = case.evidence.reference
    arms = case.evidence.arms
    match best.verdict:
        case "use" if best.canary:
            return f"canary {best.arm}{to}, then roll out"
        case "use":
            return f"use {best.arm}{to}"
        case "calibrate":
            return f"stay on {reference}; calibrate {best.arm}, then test it again"
        case "test further":
            return f"stay on {reference}; test {best.arm} further"
        case "no difference" if any(each.twin and each.name == best.arm for each in arms):
            return f"stay on {reference}: {best.arm} says that it is the same; check its flags"
        case "no difference":
            return f"stay on {reference}: {best.arm} makes no difference{to}"
        case "avoid":
            remedy = f"; {best.remedy}, then test it again" if best.remedy else ""
            broken = description(case, best.arm)
            why = "" if broken is None else f", which is {broken}"
            return f"stay on {reference}: avoid {best.arm}{to}{why}{remedy}"


def _unmet(case: Case) -> str:
    """Say that no arm meets the service level, and up to which load each does; else empty."""
    found = case.service_levels
    if case.is_unmet:
        return f"no arm meets {found[0].limits}, even with one session"
    if not case.is_unmet_as_played:
        return ""
    said = f"no arm meets {found[0].limits} at the load that was played"
    held = []
    for each in found:
        if each.agents_per_gpu is not None:
            agents = math.floor(each.agents_per_gpu.value)
            held.append(f"{each.arm} does up to {agents} agents per GPU")
    return f"{said}; {', '.join(held)}" if held else said


def _why(case: Case, best: ArmVerdict, other: ArmVerdict) -> str:
    if other.verdict != best.verdict:
        return f"{other.verdict}: {other.reason}"
    direct = between(case.evidence, best.arm, other.arm, case.shares, case.policy)
    if direct is not None and not case.evidence.overfull(best.arm, other.arm):
        relative = direct.relative(unit="relative", method=METHOD)
        return f"its turns take {words.change(relative)} against {best.arm}"
    return other.reason


def _slower(case: Case, arm: str, classes: Sequence[ArmVerdict]) -> dict[str, float]:
    """Return what each class that loses on *arm* adds at least to the mix's turn latency."""
    shares = dict(case.shares)
    added = {}
    for each in classes:
        if each.arm != arm or each.workload is None:
            continue
        speed = case.speed(arm, each.workload)
        slower = 0.0 if speed is None else max(0.0, speed.change.relative.low or 0.0)
        if slower > 0 or each.verdict == "avoid":
            added[each.workload] = shares[each.workload] * slower
    return added


def _spare(case: Case, arm: str) -> float | None:
    """Return one spare replica as a share of those the peak takes; None where unknown."""
    found = case.capacity_of(arm, None)
    if found is None or not found.replicas_at_peak:
        return None
    return 1 / found.replicas_at_peak


def split_if_used(case: Case, arm: str, classes: Sequence[ArmVerdict]) -> str:
    """Say what a second pool on the reference would gain for the classes that lose on *arm*."""
    losing = _slower(case, arm, classes)
    reference = case.evidence.reference
    avoided = [
        each.workload
        for each in classes
        if each.arm == arm and each.verdict == "avoid" and each.workload is not None
    ]
    if not losing:
        return f"One flag: no class is shown to lose on {arm}."
    if avoided:
        return f"Split: {', '.join(avoided)} on {reference}, at the price of a spare in each pool."
    gain = sum(losing.values())
    spare = _spare(case, arm)
    told = (
        f"a {reference} pool for {', '.join(losing)} would gain at least {gain:.1%} of the "
        "mix's turn latency"
    )
    if spare is None:
        return f"One flag, unless a spare replica costs you less: {told}."
    if gain > spare:
        return f"Split: {told}, more than the {spare:.0%} that a spare replica is of your peak."
    return f"One flag: {told}, less than the {spare:.0%} that a spare replica is of your peak."


def split_if_refused(case: Case, classes: Sequence[ArmVerdict]) -> str:
    """Say which classes would gain from their own pool though the reference stays in use."""
    winners = [
        (each.workload, each.arm)
        for each in classes
        if each.verdict == "use" and each.workload is not None
    ]
    if not winners:
        return f"One flag: no class is shown to gain from leaving {case.evidence.reference}."
    names = ", ".join(f"{workload} ({arm})" for workload, arm in winners)
    return (
        f"Split, if a pool of their own is worth a spare: {names}; the rest stays on "
        f"{case.evidence.reference}."
    )


def choose(case: Case, server: Sequence[ArmVerdict], classes: Sequence[ArmVerdict]) -> Choice:
    """Return the choice among the verdicts on the whole server."""
    reference = case.evidence.reference
    ends = tuple(map(_end, server))
    best, *others = sorted(server, key=lambda each: _key(case, each, ends))
    if best.verdict != "use":
        return Choice(
            arm=reference,
            verdict=best.verdict,
            canary=False,
            headline=_unmet(case) or _headline(case, best),
            runner_up=best.arm,
            why_it_lost=f"{best.verdict}: {best.reason}",
            split_pools=split_if_refused(case, classes),
            holds_to=best.holds_to,
        )
    return Choice(
        arm=best.arm,
        verdict="use",
        canary=best.canary,
        headline=_headline(case, best),
        runner_up=others[0].arm if others else reference,
        why_it_lost=_why(case, best, others[0]) if others else best.pays.reason,
        split_pools=split_if_used(case, best.arm, classes),
        holds_to=best.holds_to,
    )
