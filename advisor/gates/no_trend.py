"""Arms differ by one number only if their difference stays the same
from start to start: a cache that warms on one of them moves it.

Student's t takes starts for independent draws. Starts with a direction are none: the
first of them show what will not be seen again, or the last of them something that has
just begun. What warms moves by less from start to start, so starts are correlated
with the log of their distance in time from either end: this finds 12% that warm over
three pairs in all runs of 13 starts, and in two fifths of those of six.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import scipy

from advisor.evidence import Evidence, Floats
from advisor.policy import Policy
from advisor.statistics import paired
from advisor.statistics.starts import SURE_PAIRS
from advisor.verdict import TIMES, Gate

LEAST = 6  # starts: with fewer, what is assumed of starts and of slow wander carries the interval
ROUNDING = 1e-9  # log ratio: emulated servers without noise differ by rounding alone
LEVEL = 0.01  # two-sided: a rare false alarm, for it costs the comparison
LOOKS = 5  # of a planned sequence from the first that a failure ends on: they share the level


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield a failure for each difference from the reference that rises or falls over the starts.

    A difference is that of one challenger on one workload.
    """
    for arm, workload in product(evidence.challengers, evidence.workloads):
        means = paired.start_means(evidence.sides(workload.name, arm.name))
        if means.size < LEAST or np.ptp(means) <= ROUNDING:
            continue
        distance = np.log(1 + np.arange(means.size))
        from_first = _p_of_correlation(distance, means)
        from_last = _p_of_correlation(distance, means[::-1])
        p = min(1.0, 2 * min(from_first, from_last))  # two looks at one question: Bonferroni
        # Before, a failure asks for more pairs and ends nothing.
        ends_comparison = policy.planned_looks and means.size >= SURE_PAIRS
        level = LEVEL / LOOKS if ends_comparison else LEVEL
        if p > level:
            continue
        third = means.size // 3
        first = np.expm1(means[:third].mean())
        last = np.expm1(means[-third:].mean())
        message = (
            f"turn latency against {evidence.reference} moved from {first:+.1%} in the "
            f"first third of {means.size} starts "
            f"to {last:+.1%} in the last: find out what changed, or warm both servers "
            "longer, and measure again"
        )
        yield Gate(
            name="no trend",
            status="fail",
            arm=arm.name,
            workload=workload.name,
            message=message,
            observed=p,
            limit=level,
            unit="p",
            spoils=TIMES,
        )


def _p_of_correlation(x: Floats, y: Floats) -> float:
    """Return the two-sided p-value that two series are not correlated."""
    size = abs(float(np.corrcoef(x, y)[0, 1]))
    half = x.size / 2 - 1
    return float(2 * scipy.special.betainc(half, half, (1 - min(size, 1.0)) / 2))
