"""A quantised cache ran without the prefix caching that the reference
has: try both together, or keep the one that is worth more on this load.
"""

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.evidence import Arm
from advisor.steps import Features, MorePairs
from advisor.verdict import Finding, weight

NEEDS = frozenset({"evidence.arms.prefix_caching"})


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that a quantised arm runs without the prefix caching that the reference has."""
    reference = case.evidence.base
    is_without = reference.prefix_caching is True and arm.prefix_caching is False
    if not is_quantised(arm) or not is_without:
        return None
    why = (
        f"{arm.name} ran without prefix caching, so its cache dtype and prefix caching were not "
        "tried together."
    )
    speed = case.speed(arm.name, None)
    if speed is None:
        told = f"{why} Replay it without prefix caching against {reference.name} with it."
        return Finding(kind="opposes", message=told, next_step=MorePairs(pairs=12), leg="pays")
    relative = speed.change.relative
    keep = {
        "supports": f"keep the cache dtype of {arm.name}",
        "opposes": "keep prefix caching",
    }.get(weight(relative), "neither is shown to be worth more")
    return Finding(
        kind="supports" if relative.is_below(0.0) else "opposes",
        message=f"{why} Turn latency {words.moves(relative)}: {keep}.",
        estimates=(relative,),
        flips="a version in which both work",
        next_step=Features(),
        leg="pays",
    )
