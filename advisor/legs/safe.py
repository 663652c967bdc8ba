"""Decide whether an arm is safe: answers not worse by the margin, pooled and in every bucket.

Answers are paired, and at the workload's own lengths. The server is safe where every workload that
binds it is: a loss that one of them has at its own lengths is not thinned by the others.
"""

from dataclasses import replace

from advisor import words
from advisor.case import Case, Tested
from advisor.dtypes import same_numbers
from advisor.legs import questions
from advisor.verdict import Leg, LegState, Need


def safe_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether answers are shown to be as good, shown to be worse, or neither."""
    own = _alone(case, arm, workload)
    if workload is not None or own.leg.state == "no" or same_numbers(*case.evidence.both(arm)):
        return own
    return _with(
        own,
        {name: _alone(case, arm, name) for name in case.weighty()},
        level=case.level(arm, alone=True),
    )


def _alone(case: Case, arm: str, workload: str | None) -> Tested:
    margin = case.policy.accuracy_margin
    if same_numbers(*case.evidence.both(arm)):
        reason = "same KV dtype and kernel: nothing that touches the answers changed"
        return Tested(leg=Leg(name="safe", state="yes", margin=margin, reason=reason))
    found, spoiled = case.accuracy_of(arm, workload), case.spoiler("accuracy", arm, workload)
    if spoiled is not None:
        reason = (
            f"answers cannot be judged, because a validity check failed ({spoiled.name}: "
            f"{spoiled.message})"
        )
        needs = (Need(what=f"answers that pass the check '{spoiled.name}'"),)
        return Tested(
            leg=Leg(name="safe", state="untested", margin=margin, reason=reason, needs=needs),
            if_unclear=needs,
        )
    if found is None:
        asked = any(each.arm == arm for each in case.evidence.accuracy)
        reason = f"accuracy was not tested{' at these context lengths' if asked else ''}"
        needs = (questions.first(case, arm, workload),)
        return Tested(
            leg=Leg(name="safe", state="untested", margin=margin, reason=reason, needs=needs),
            if_unclear=needs,
        )
    told = (
        f"accuracy {words.points(found.estimate)} {_where(found.lengths)}, margin "
        f"{100 * margin:.0f} pp"
    )
    needs = (questions.more(case, found),)
    level = case.level(arm, alone=True)
    # Pooled, by the interval that is printed; a bucket that was looked for has to be twice as sure.
    p_for, p_against = found.p_not_worse, min(1.0, found.p_worse, 2 * found.worst_p)

    def tested(state: LegState, reason: str, settles: tuple[Need, ...] = ()) -> Tested:
        leg = Leg(
            name="safe",
            state=state,
            estimate=found.estimate,
            margin=margin,
            reason=reason,
            needs=settles,
            answers=found.answers,
        )
        return Tested(leg=leg, p_for=p_for, p_against=p_against, if_unclear=needs)

    if p_against <= level:
        worst = (
            f"{words.bucket(found.worst.task, found.worst.context_tokens)} "
            f"{words.points(found.worst.difference)}"
        )
        return tested("no", told if found.p_worse <= 2 * found.worst_p else f"{told}; {worst}")
    return tested("unclear", told, needs) if p_for > level else tested("yes", told)


def _where(lengths: tuple[float, ...]) -> str:
    first, last = lengths[0], lengths[-1]
    return (
        f"at {words.length(last)}"
        if first == last
        else f"at {words.length(first)} to {words.length(last)}"
    )


def _with(own: Tested, parts: dict[str, Tested], *, level: float) -> Tested:
    """Return the server's criterion from its pooled answers and each workload that binds it."""
    harmed = _harmed(parts, level=level)
    if harmed is not None:
        return harmed
    unsettled = {
        name: each for name, each in parts.items() if each.p_for is None or each.p_for > level
    }
    return _undecided(own, unsettled) if unsettled else own


def _harmed(parts: dict[str, Tested], *, level: float) -> Tested | None:
    """Return the first workload whose answers are surely worse; all are tested (Bonferroni)."""
    count = sum(each.p_against is not None for each in parts.values())
    for name, each in parts.items():
        if each.p_against is None:
            continue
        p_of_any = each.p_against * count
        if p_of_any <= level:
            reason = f"{name}: {each.leg.reason}"
            leg = replace(each.leg, state="no", reason=reason, needs=())
            return replace(each, leg=leg, p_against=p_of_any)
    return None


def _undecided(own: Tested, unsettled: dict[str, Tested]) -> Tested:
    """Return the server's criterion as open, with what would settle the workloads."""
    state, reason = own.leg.state, own.leg.reason
    if state not in ("unclear", "untested"):
        state = "unclear"
        reason = f"{reason}; undecided for {', '.join(unsettled)}"
    settles: list[Need] = []
    for each in unsettled.values():
        settles.extend(each.if_unclear)
    needs = tuple(dict.fromkeys(settles))
    return Tested(
        leg=replace(own.leg, state=state, reason=reason, needs=needs),
        p_for=max(each.p_for or 1.0 for each in unsettled.values()),
        p_against=own.p_against,
        if_unclear=needs,
    )
