"""The pool was not full for long enough: this run says
nothing about capacity, whichever arm has the larger pool.
"""

from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.server"})


def check(case: Case) -> Finding | None:
    """Name the arms whose pool was full for too little of the run.

    Nothing is said where the load does not need the pool, nor of an arm of which trials say how
    many agents it carries.
    """
    if case.room(None).state == "slack":
        return None
    idle = {}
    for arm, figures in case.evidence.server:
        share = figures.pool_filled_share
        is_unknown = case.agents_of(arm, None) is None
        if share is not None and share < case.policy.min_filled_share and is_unknown:
            idle[arm] = share
    if not idle:
        return None
    idle_shares = ", ".join(f"{share:.0%} of the run on {arm}" for arm, share in idle.items())
    message = (
        f"The KV pool was full for {idle_shares}: no statement on capacity follows from this run"
    )
    search = case.filling_search()
    if search is None and all(map(case.never_filled, idle)):
        message += ", nor from the search, which misses the service level before a pool is full"
    return Finding(
        kind="informs",
        message=f"{message}.",
        flips=None if search is None else "long primed runs that keep the pool full",
        next_step=search,
        leg="capacity",
    )
