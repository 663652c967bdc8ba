"""Decide by the service level, where one arm meets it and another does not, or none does.

What is faster, or cheaper, outside the level is of no use to the user who stated it.
"""

from dataclasses import replace

from advisor.case import Case
from advisor.estimate import Estimate
from advisor.verdict import Leg, ServiceLevel

LEVEL = "turns of a single session within the service level"


def level_leg(case: Case, arm: str, speed: Leg) -> Leg | None:
    """Return the criterion that the service level decides; None where it decides nothing."""
    mine, theirs = case.service_level(arm), case.service_level(case.evidence.reference)
    if mine is None or theirs is None:
        return None
    share = _share(case, arm, speed)
    fact = "" if speed.estimate is None else f"; {speed.reason}"
    if mine.state == "no" and theirs.state == "no":
        both = f"{_of(mine)}, {_of(theirs)}"
        reason = f"neither arm meets {mine.limits} even with one session ({both})"
        return Leg(name="pays", state="no", estimate=share, reason=f"{reason}{fact}")
    if mine.state == "no":
        reason = miss_text(mine) + (f", {theirs.arm} meets it" if theirs.state == "yes" else "")
        return Leg(name="pays", state="no", estimate=share, reason=f"{reason}{fact}")
    if theirs.state == "no" and mine.state == "yes":
        reason = f"{mine.arm} meets {mine.limits}, and {miss_text(theirs)}"
        return Leg(name="pays", state="yes", estimate=share, reason=f"{reason}{fact}")
    return None


def miss_text(level: ServiceLevel) -> str:
    """Say that an arm misses the level, and by how much where that is known."""
    why = f" ({level.reason})" if level.reason else ""
    return f"{level.arm} misses {level.limits} even with one session{why}"


def _of(level: ServiceLevel) -> str:
    return f"{level.arm}: {level.reason or 'by how much is not known'}"


def _share(case: Case, arm: str, speed: Leg) -> Estimate | None:
    """Return the turns of a single session that were within the level, as they were counted."""
    alone = [each for each in case.evidence.alone if each.arm == arm]
    turns = sum(each.turns for each in alone)
    if not turns:
        return None
    within = sum(each.within_slo for each in alone) / turns
    counted = Estimate(value=within, low=None, high=None, n=turns, unit="share", method=LEVEL)
    # A report shows it next to the interval of speed: the level is that one's.
    return counted if speed.estimate is None else replace(counted, level=speed.estimate.level)
