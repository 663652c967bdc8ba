"""Decide whether an arm is safe: answers not worse by the margin, pooled and in every bucket.

Answers are paired, and at the workload's own lengths. The server is safe where every workload that
binds it is: a loss that one of them has at its own lengths is not thinned by the others.
"""

from dataclasses import replace

from advisor import words
from advisor.case import Case
from advisor.dtypes import same_numbers
from advisor.legs import questions
from advisor.results import PooledAccuracy, Tested
from advisor.verdict import Leg, LegState, Need


def safe_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether answers are shown to be as good, shown to be worse, or neither."""
    found = _of_scope(case, arm, workload)
    is_same = same_numbers(*case.evidence.both(arm))
    if workload is not None or found.leg.state == "no" or is_same:
        return found
    parts = {name: _of_scope(case, arm, name) for name in case.weighty()}
    return _of_server(found, parts, level=case.level_of_answers)


def _of_scope(case: Case, arm: str, workload: str | None) -> Tested:
    """Return the criterion of one workload, or of all answers pooled."""
    margin = case.policy.accuracy_margin
    if same_numbers(*case.evidence.both(arm)):
        reason = "same KV dtype and kernel: nothing that touches the answers changed"
        return Tested(leg=Leg(name="safe", state="yes", margin=margin, reason=reason))
    failed = case.spoiler("accuracy", arm, workload)
    if failed is not None:
        return _untested(
            margin,
            f"answers cannot be judged: {failed.message.partition(';')[0]}",
            Need(what=f"answers that pass the check '{failed.name}'"),
        )
    found = case.accuracy_of(arm, workload)
    if found is not None:
        return _judged(case, found)
    reason = "accuracy was not tested"
    if any(each.arm == arm for each in case.evidence.accuracy):
        reason = f"{reason} at these context lengths"
    return _untested(margin, reason, questions.first(case, arm, workload))


def _untested(margin: float, reason: str, need: Need) -> Tested:
    leg = Leg(name="safe", state="untested", margin=margin, reason=reason, needs=(need,))
    return Tested(leg=leg, if_unclear=(need,))


def _judged(case: Case, found: PooledAccuracy) -> Tested:
    """Return the criterion as pooled answers and their worst bucket decide it."""
    margin = case.policy.accuracy_margin
    level = case.level_of_answers
    # Pooled, by the interval that is printed; a bucket that was looked for has to be twice as sure.
    p_for = found.p_not_worse
    p_of_bucket = 2 * found.worst_p
    p_against = min(1.0, found.p_worse, p_of_bucket)
    change = f"{words.points(found.estimate)} {_where(found.lengths)}"
    reason = f"accuracy {change}, margin {100 * margin:.0f} pp"
    state: LegState = "unclear" if p_for > level else "yes"
    if p_against <= level:
        state = "no"
        if found.p_worse > p_of_bucket:
            worst = words.bucket(found.worst.task, found.worst.context_tokens)
            reason += f"; {worst} {words.points(found.worst.difference)}"
    needs = (questions.more(case, found),)
    leg = Leg(
        name="safe",
        state=state,
        estimate=found.estimate,
        margin=margin,
        reason=reason,
        needs=needs if state == "unclear" else (),
        answers=found.answers,
    )
    return Tested(leg=leg, p_for=p_for, p_against=p_against, if_unclear=needs)


def _where(lengths: tuple[float, ...]) -> str:
    first = words.length(lengths[0])
    if lengths[0] == lengths[-1]:
        return f"at {first}"
    return f"at {first} to {words.length(lengths[-1])}"


def _of_server(pooled: Tested, parts: dict[str, Tested], *, level: float) -> Tested:
    """Return the server's criterion from its pooled answers and each workload that binds it."""
    harmed = _harmed(parts, level=level)
    if harmed is not None:
        return harmed
    unsettled = {name: each for name, each in parts.items() if not each.is_shown(level)}
    return _undecided(pooled, unsettled) if unsettled else pooled


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


def _undecided(pooled: Tested, unsettled: dict[str, Tested]) -> Tested:
    """Return the server's criterion as open, with what would settle the workloads."""
    settles = [need for each in unsettled.values() for need in each.if_unclear]
    needs = tuple(dict.fromkeys(settles))
    leg = replace(pooled.leg, needs=needs)
    if leg.state not in ("unclear", "untested"):
        reason = f"{leg.reason}; undecided for {', '.join(unsettled)}"
        leg = replace(leg, state="unclear", reason=reason)
    return Tested(
        leg=leg,
        p_for=max(each.p_for or 1.0 for each in unsettled.values()),
        p_against=pooled.p_against,
        if_unclear=needs,
    )
