"""The KV pool limits this load: the size of the pool counts for more than the speed of a step."""

from collections.abc import Iterator
from itertools import product

from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"rooms", "evidence.arms.pool_tokens"})


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding a workload (and the mix) that the
    reference's pool limits, for each arm with another pool.
    """
    reference, search = case.evidence.base, case.filling_search()
    for room, arm in product(case.rooms, case.evidence.challengers):
        if room.state != "binds" or not reference.pool_tokens or not arm.pool_tokens:
            continue
        ratio = arm.pool_tokens / reference.pool_tokens
        known = case.agents_of(arm.name, room.workload)
        base = case.agents_of(reference.name, room.workload)
        larger, than = ratio, 1.0
        worth = ""
        if known is None and search is not None:
            worth = " Only long runs that fill the pool show what that is worth."
        elif known is None and case.never_filled(arm.name):
            # A pool that no load within the service level fills is worth no more than a small one.
            larger = than
            worth = f" No load that was tried within the service level fills that of {arm.name}."
        if known is not None and base is not None:
            # What was carried counts for more than what would fit.
            larger, than = known.value, base.value
        yield Finding(
            kind="supports" if larger > than * (1 + case.policy.min_capacity_gain) else "informs",
            arm=arm.name,
            workload=room.workload,
            message=f"The pool limits this load ({room.reason}); {arm.name} holds {ratio:.2f}x the "
            f"tokens of {reference.name}." + worth,
            next_step=None if known else search,
            leg="capacity",
        )
