"""Two servers that say the same of themselves, answer
the same and take the same time: nothing is compared.

The flag that should tell them apart may never have reached the server. Where timings or answers
differ all the same, what the servers say is not all that they are, and the run has to tell.
"""

import numpy as np

from advisor.case import Case
from advisor.evidence import Arm
from advisor.legs.speed import INDIFFERENT
from advisor.statistics.accuracy import mcnemar
from advisor.statistics.paired import pair_table
from advisor.steps import Features
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.workloads"})

CHANGED = 0.05  # two-sided level at which as many lost as won answers are no longer believed


def _change(case: Case, arm: str) -> float | None:
    """Return by how much turns on *arm* take longer so
    far, on the log scale; None where none was paired.
    """
    means, weights = [], []
    for name, share in case.shares:
        sides = case.evidence.sides(name, arm)
        table = None if sides is None else pair_table(*sides, "turn_ms")
        if table is not None:
            means.append(float(table.value.mean()))
            weights.append(share)
    if sum(weights) <= 0:
        return None
    return float(np.average(means, weights=weights))


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that nothing tells the arm from the reference,
    where what both say and what was measured agree on it.
    """
    buckets = [each for each in case.evidence.accuracy if each.arm == arm.name]
    lost = sum(each.reference_only for each in buckets)
    won = sum(each.arm_only for each in buckets)
    change = _change(case, arm.name) if arm.twin else None
    if change is None or abs(change) > INDIFFERENT * case.policy.min_change:
        return None
    if mcnemar(reference_only=lost, arm_only=won) <= CHANGED:
        return None
    reference = case.evidence.reference
    items = sum(each.items for each in buckets)
    alike = "no answers were compared"
    if items:
        alike = f"{items - lost - won} of {items} answers are alike"
    return Finding(
        kind="blocks",
        message=(
            f"{reference} and {arm.name} say that they are the same configuration, turns "
            f"take {100 * np.expm1(change):+.1f}% "
            f"and {alike}: this is no comparison. Check that the flags of {arm.name} "
            "reached its server."
        ),
        flips=f"flags under which {arm.name} says something else of itself than {reference}",
        next_step=Features(),
        leg="validity",
        asks_for="no difference",
    )
