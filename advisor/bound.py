"""Say up to which context a verdict holds: what was
timed, or asked, says nothing of calls that are longer.
"""

from dataclasses import dataclass

from advisor import words
from advisor.assess.coverage import SLACK, refused
from advisor.case import Case
from advisor.legs import questions
from advisor.verdict import Need, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Hold the context up to which a verdict holds, what
    share of the calls is longer, and what would say more.
    """

    to: float
    calls: float
    reason: str
    needs: tuple[Need, ...]


def bound(
    case: Case, arm: str, workload: str | None, word: Word, *, is_by_load: bool
) -> Bound | None:
    """Return the bound of a verdict; None where it holds for all of the user's calls.

    What follows from the load that was played holds for contexts that were
    timed, and "use" for those at which answers were compared as well. Wrong
    answers, and a rule that refuses an arm, are enough anywhere.
    """
    reach, policy, window = (
        case.reach_of(arm, workload),
        case.policy,
        case.evidence.deployment.max_model_len,
    )
    follows_from_load = word in ("use", "no difference") or (word == "avoid" and is_by_load)
    timed = reach.timed if follows_from_load else None
    asked = reach.asked if word == "use" else None
    taken = refused(case.evidence, arm) if word in ("use", "no difference") else None
    known = [each for each in (timed, asked, taken) if each is not None]
    ends = [each for each in known if each is taken or each.bound(policy) is not None]
    found = case.accuracy_of(arm, workload)
    needs = []
    for each in ends:
        if each is taken or (window is not None and window <= SLACK * each.to):
            continue  # the servers take no longer contexts
        if each is asked and found is not None:
            needs.append(questions.longer(case, found))
        elif each is timed:
            to = f"{words.length(each.to)} to {words.length(reach.longest or each.to)}"
            needs.append(
                Need(what=f"block pairs of {words.scope(workload)} on {arm} at contexts of {to}")
            )
    if not ends:
        return None
    least = min(ends, key=lambda each: each.to)
    if taken is not None and least is taken:
        reaches = min(each.to for each in known)
        reason = (
            f"This holds for contexts up to {words.length(reaches)}: {arm} refuses those "
            f"above {words.length(taken.to)}, "
            f"{taken.calls:.0%} of your calls."
        )
        return Bound(to=reaches, calls=taken.calls, reason=reason, needs=tuple(needs))
    further = "" if reach.longest is None else f", up to {words.length(reach.longest)}"
    reason = (
        f"This holds for contexts up to {words.length(least.to)}: {least.calls:.0%} of your "
        f"calls are longer{further}, and need further "
        "testing."
    )
    return Bound(to=least.to, calls=least.calls, reason=reason, needs=tuple(needs))
