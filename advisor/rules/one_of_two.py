"""A quantised cache and prefix caching exclude each
other here: keep the one that is worth more on this load.
"""

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.evidence import Arm
from advisor.steps import Features, MorePairs
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.arms.prefix_caching"})


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that a quantised arm runs without, or fails
    with, the prefix caching that the reference has.
    """
    reference = case.evidence.base
    failed = [
        each
        for each in case.evidence.probes
        if each.arm == arm.name and each.prefix_caching and each.outcome != "ok"
    ]
    alone = reference.prefix_caching is True and arm.prefix_caching is False
    if not is_quantised(arm) or not (failed or alone):
        return None
    why = (
        f"with prefix caching it ends in: {failed[0].outcome}"
        if failed
        else "it ran without prefix caching"
    )
    speed = case.speed(arm.name, None)
    if speed is None:
        told = (
            f"{arm.name} cannot have both: {why}. Replay it without prefix caching against "
            f"{reference.name} with it."
        )
        return Finding(kind="opposes", message=told, next_step=MorePairs(pairs=12), leg="pays")
    relative = speed.change.relative
    keep = (
        f"the cache dtype of {arm.name}"
        if relative.is_below(0.0)
        else "prefix caching"
        if relative.is_above(0.0)
        else None
    )
    return Finding(
        kind="supports" if relative.is_below(0.0) else "opposes",
        message=f"{arm.name} cannot have both: {why}. Turn time changes by "
        f"{words.change(relative)}: "
        + (f"keep {keep}." if keep else "neither is shown to be worth more."),
        estimates=(relative,),
        flips="a version in which both work",
        next_step=Features(),
        leg="pays",
    )
