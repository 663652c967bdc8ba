"""Both arms have to finish the same turns, and nearly all of them:
those that are dropped are the long ones, and the rest looks faster.
"""

from collections.abc import Iterator
from itertools import product

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "dropped turns"


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate a challenger and workload."""
    for workload, arm in product(evidence.workloads, evidence.challengers):
        sides = evidence.sides(workload.name, arm.name)
        if sides is None:
            continue
        theirs, mine = (1.0 - float(calls.ok.mean()) for calls in sides)
        most = max(mine, theirs)
        are_unequal = abs(mine - theirs) > policy.max_dropped_difference
        are_many = most > policy.max_dropped_share
        observed = mine - theirs
        limit = policy.max_dropped_difference
        but = ": what is left cannot be compared"
        if are_many and not are_unequal:
            observed = most
            limit = policy.max_dropped_share
            but = ": what is left are the turns that are quick enough"
        if most == 1.0:
            but = ": nothing is left to compare"
        gate = Gate(
            name=NAME,
            arm=arm.name,
            workload=workload.name,
            message=f"{mine:.1%} of the turns dropped, {theirs:.1%} on {evidence.reference}",
            observed=observed,
            limit=limit,
            spoils=TIMES,
        )
        yield gate.judged(good=not (are_unequal or are_many), but=but)
