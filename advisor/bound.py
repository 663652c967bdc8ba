"""Say up to which context a verdict holds.

Latencies that were timed, and questions that were asked, say nothing of longer calls.
"""

from dataclasses import dataclass

from advisor import words
from advisor.assess.coverage import SLACK, refusal
from advisor.case import Beyond, Case, TestedReach
from advisor.legs import questions
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
    follows_from_load = word in ("use", "no difference") or (word == "avoid" and is_by_load)
    timed = reach.timed if follows_from_load else None
    asked = reach.asked if word == "use" else None
    taken = refusal(case.evidence, arm) if word in ("use", "no difference") else None
    known = [each for each in (timed, asked, taken) if each is not None]
    ends = [each for each in known if each is taken or each.bound(case.policy) is not None]
    if not ends:
        return None
    further = [each for each in ends if each is not taken and _could_go_on(case, each)]
    found = case.accuracy_of(arm, workload)
    needs = []
    for each in further:
        if each is asked and found is not None:
            needs.append(questions.longer(case, found))
        elif each is timed:
            needs.append(_more_pairs(reach, each))
    least = min(ends, key=lambda each: each.to)
    if taken is not None and least is taken:
        reaches = min(each.to for each in known)
        reason = (
            f"This holds for contexts up to {words.length(reaches)}: {arm} refuses those "
            f"above {words.length(taken.to)}, "
            f"{taken.calls:.0%} of your calls."
        )
        return Bound(to=reaches, calls=taken.calls, reason=reason, needs=tuple(needs))
    up_to = "" if reach.longest is None else f", up to {words.length(reach.longest)}"
    reason = (
        f"This holds for contexts up to {words.length(least.to)}: {least.calls:.0%} of your "
        f"calls are longer{up_to}, and need further "
        "testing."
    )
    return Bound(to=least.to, calls=least.calls, reason=reason, needs=tuple(needs))


def _could_go_on(case: Case, end: Beyond) -> bool:
    """Say whether the servers take contexts that are longer than this end."""
    window = case.evidence.deployment.max_model_len
    return window is None or window > SLACK * end.to


def _more_pairs(reach: TestedReach, end: Beyond) -> Need:
    to = f"{words.length(end.to)} to {words.length(reach.longest or end.to)}"
    return Need(
        what=f"block pairs of {words.scope(reach.workload)} on {reach.arm} at contexts of {to}"
    )
