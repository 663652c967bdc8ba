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
        differs, many = (
            abs(mine - theirs) > policy.max_dropped_difference,
            max(mine, theirs) > policy.max_dropped_share,
        )
        by_count = many and not differs
        yield Gate(
            name=NAME,
            arm=arm.name,
            workload=workload.name,
            message=f"{mine:.1%} of the turns dropped, {theirs:.1%} on {evidence.reference}",
            observed=max(mine, theirs) if by_count else mine - theirs,
            limit=policy.max_dropped_share if by_count else policy.max_dropped_difference,
            spoils=TIMES,
        ).judged(
            good=not (differs or many),
            but=": nothing is left to compare"
            if max(mine, theirs) == 1.0
            else ": what is left "
            + ("are the turns that are quick enough" if by_count else "cannot be compared"),
        )
