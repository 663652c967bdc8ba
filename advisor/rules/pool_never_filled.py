"""The pool was not full for long enough: this run says
nothing about capacity, whichever arm has the larger pool.
"""

from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.server"})


def check(case: Case) -> Finding | None:
    """Return the arms whose pool was full for too little of the run,
    where the load could need it and no trials say what they carry.
    """
    if case.room(None).state == "slack":
        return None
    seen = {
        arm: figures.pool_filled_share
        for arm, figures in case.evidence.server
        if figures.pool_filled_share is not None
    }
    idle = {
        arm: share
        for arm, share in seen.items()
        if share < case.policy.min_filled_share and not case.carries(arm, None)
    }
    if not idle:
        return None
    told = ", ".join(f"{share:.0%} of the run on {arm}" for arm, share in idle.items())
    message = f"The KV pool was full for {told}: no statement on capacity follows from this run"
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
