"""Two copies of one configuration: what the place in the order
adds, or what one start differs from the next by. It vetoes nothing.
"""

import math

from advisor import words
from advisor.assess.speed import floor_of
from advisor.case import Case
from advisor.legs.speed import MOST_PAIRS
from advisor.steps import Control, MorePairs
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})


def check(case: Case) -> Finding | None:
    """Return what the least certain control of the run leaves possible, or that there is none."""
    turns = [each for each in case.speeds if each.change.metric == "turn_ms"]
    controls = [(each.control, each) for each in turns]
    controlled = [(control.se, control, each) for control, each in controls if control is not None]
    if not controlled:
        return Finding(
            kind="informs",
            message="No A/A control: the noise floor is unknown, so confirm small gains with a "
            "canary.",
            next_step=Control(arm=case.evidence.reference),
            leg="validity",
        )
    _, control, speed = max(controlled, key=lambda each: each[0])
    small = control.se > case.policy.position_spread
    pairs = math.ceil(control.units * (control.se / case.policy.position_spread) ** 2)
    told = (
        f"On {words.scope(speed.workload)} two identical servers may differ by up to "
        f"{floor_of(control):.1%} in turn latency "
        f"(A/A control, {control.units} {control.unit_name.removeprefix('block ')})"
    )
    if small:
        is_far = pairs > MOST_PAIRS
        takes = (
            f"over {MOST_PAIRS:,} pairs: find out what disturbs them first"
            if is_far
            else f"about {pairs} pairs"
        )
        message = (
            f"{told}. This control is too small to resolve {case.policy.position_spread:.1%}, "
            f"which takes {takes}."
        )
        return Finding(
            kind="informs",
            message=message,
            next_step=None if is_far else MorePairs(pairs=pairs),
            leg="validity",
        )
    return Finding(kind="informs", message=f"{told}.", leg="validity")
