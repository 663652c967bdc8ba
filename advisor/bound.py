"""Say up to which context a verdict holds.

Latencies that were timed, and questions that were asked, say nothing of longer calls.
"""

from dataclasses import dataclass
from typing import TypeGuard

from advisor import words
from advisor.assess.coverage import SLACK, refusal
from advisor.case import Case
from advisor.estimate import present
from advisor.legs import questions
from advisor.results import Beyond, TestedReach
from advisor.verdict import Need, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Hold the context up to which a verdict holds, and what would extend it.

    `to` is a length in tokens, `calls` the share of the user's calls that are longer.
    """

    to: float
    calls: float
    reason: str
    needs: tuple[Need, ...]


def bound(
    case: Case, arm: str, workload: str | None, word: Word, *, is_by_load: bool
) -> Bound | None:
    """Return the bound of a verdict; None where it holds for all of the user's calls.

    A verdict that follows from the load that was played holds up to the longest context that was
    timed, and "use" no further than the longest at which answers were compared. Wrong answers, and
    a rule that asks to avoid an arm, decide at every length.
    """
    reach = case.reach_of(arm, workload)
    is_as_good = word in ("use", "no difference")
    follows_from_load = is_as_good or (word == "avoid" and is_by_load)
    timed = reach.timed if follows_from_load else None
    asked = reach.asked if word == "use" else None
    taken = refusal(case.evidence, arm) if is_as_good else None
    untested = [each for each in present((timed, asked)) if _is_much(case, each)]
    ends = [*untested, *present((taken,))]
    if not ends:
        return None
    least = min(ends, key=lambda each: each.to)
    to = least.to
    if least is taken:
        # A bound is stated anyway, so it goes no further than tests, however little lies beyond.
        to = min(each.to for each in present((timed, asked, taken)))
        refused = f"{arm} refuses those above {words.length(least.to)}"
        why = f"{refused}, {least.calls:.0%} of your calls."
    else:
        longest = "" if reach.longest is None else f", up to {words.length(reach.longest)}"
        longer = f"{least.calls:.0%} of your calls are longer{longest}"
        why = f"{longer}, and need further testing."
    return Bound(
        to=to,
        calls=least.calls,
        reason=f"This holds for contexts up to {words.length(to)}: {why}",
        needs=(*_pairs_needed(case, reach, timed), *_questions_needed(case, reach, asked)),
    )


def _is_much(case: Case, end: Beyond) -> bool:
    """Say whether too much of the load lies beyond this end to stay untested."""
    return end.bound(case.policy) is not None


def _could_go_on(end: Beyond | None, case: Case) -> TypeGuard[Beyond]:
    """Say whether more should be tested beyond this end, and the servers take such contexts."""
    if end is None or not _is_much(case, end):
        return False
    window = case.evidence.deployment.max_model_len
    return window is None or window > SLACK * end.to


def _pairs_needed(case: Case, reach: TestedReach, timed: Beyond | None) -> tuple[Need, ...]:
    if not _could_go_on(timed, case):
        return ()
    lengths = f"{words.length(timed.to)} to {words.length(reach.longest or timed.to)}"
    scope = words.scope(reach.workload)
    return (Need(what=f"block pairs of {scope} on {reach.arm} at contexts of {lengths}"),)


def _questions_needed(case: Case, reach: TestedReach, asked: Beyond | None) -> tuple[Need, ...]:
    found = case.accuracy_of(reach.arm, reach.workload)
    if found is None or not _could_go_on(asked, case):
        return ()
    return (questions.longer(case, found),)
