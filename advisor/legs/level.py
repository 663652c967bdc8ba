"""Decide by the service level, where one arm meets it and another does not, or none does.

What is faster, or cheaper, outside the level is of no use to the user who stated it.
"""

from dataclasses import replace

from advisor.case import Case
from advisor.estimate import Estimate
from advisor.verdict import Leg, LegState, ServiceLevel

SINGLE_SESSION = "turns of a single session within the service level"


def level_leg(case: Case, arm: str, speed: Leg) -> Leg | None:
    """Return the criterion that the service level decides; None where it decides nothing."""
    mine = case.service_level(arm)
    theirs = case.service_level(case.evidence.reference)
    if mine is None or theirs is None:
        return None
    state: LegState = "no"
    match mine.state, theirs.state:
        case "no", "no":
            both = f"{_reason(mine)}, {_reason(theirs)}"
            reason = f"neither arm meets {mine.limits} even with one session ({both})"
        case "no", "yes":
            reason = f"{miss_text(mine)}, {theirs.arm} meets it"
        case "no", _:
            reason = miss_text(mine)
        case "yes", "no":
            state = "yes"
            reason = f"{mine.arm} meets {mine.limits}, and {miss_text(theirs)}"
        case _:
            return None
    if speed.estimate is not None:
        reason = f"{reason}; {speed.reason}"
    return Leg(name="pays", state=state, estimate=_share(case, arm, speed), reason=reason)


def miss_text(level: ServiceLevel) -> str:
    """Say that an arm misses the level, and by how much where that is known."""
    why = f" ({level.reason})" if level.reason else ""
    return f"{level.arm} misses {level.limits} even with one session{why}"


def _reason(level: ServiceLevel) -> str:
    why = level.reason or "by how much is not known"
    return f"{level.arm}: {why}"


def _share(case: Case, arm: str, speed: Leg) -> Estimate | None:
    """Return the turns of a single session that were within the level, as they were counted."""
    alone = [each for each in case.evidence.alone if each.arm == arm]
    turns = sum(each.turns for each in alone)
    if not turns:
        return None
    within = sum(each.within_slo for each in alone)
    share = within / turns
    counted = Estimate(
        value=share, low=None, high=None, n=turns, unit="share", method=SINGLE_SESSION
    )
    if speed.estimate is None:
        return counted
    # A report shows it next to the interval of speed: the level is that one's.
    return replace(counted, level=speed.estimate.level)
