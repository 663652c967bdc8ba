"""Bound a quantile by order statistics, and refuse where the sample cannot bound it.

No distribution is assumed. Calls of one session resemble each other, so the count behind the
binomial is the effective one: calls divided by the design effect of the indicator "at or below the
quantile" (Woodruff 1952). Refusal counts sessions: p99 needs 299 of them for a one-sided 95 %
bound.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics.resampling import cluster_variance

BOUND_LEVEL = 0.95  # one-sided; sets the least count


def least_sessions(q: float) -> int:
    """Return the fewest independent sessions that bound quantile *q* from the far side."""
    tail = max(q, 1 - q)
    return math.ceil(math.log(1 - BOUND_LEVEL) / math.log(tail))


def quantile(
    values: Floats, clusters: Ints, q: float, *, unit: str, level: float = 0.95
) -> Estimate | None:
    """Return quantile *q* of *values* with its interval, or None with too few sessions.

    NaN rows are left out. Infinite values are turns that never ended: a quantile or an end among
    them is not known (None).
    """
    seen = ~np.isnan(values)
    values, clusters = values[seen], clusters[seen]
    if not values.size:
        return None
    index = np.unique(clusters, return_inverse=True)[1]
    sessions = int(index.max()) + 1
    if sessions < least_sessions(q):
        return None
    ordered = np.sort(values)
    n = ordered.size
    value = float(ordered[min(n - 1, math.ceil(q * n) - 1)])
    if not math.isfinite(value):
        return None
    below = (values <= value).astype(np.float64)
    wider = (
        1.0 if sessions in (1, n) else max(1.0, cluster_variance(below, index) * n / (q * (1 - q)))
    )
    effective = max(1.0, n / wider)
    low, high = (
        float(scipy.stats.binom.ppf(each, round(effective), q)) / round(effective)
        for each in ((1 - level) / 2, (1 + level) / 2)
    )
    first, last = math.floor(low * n) - 1, math.ceil(high * n)
    return Estimate(
        value=value,
        low=float(ordered[first]) if first >= 0 else None,
        high=float(ordered[last]) if last < n and math.isfinite(ordered[last]) else None,
        n=sessions,
        unit=unit,
        method=f"order statistics of {n} calls in {sessions} sessions, effective {effective:.0f}",
        level=level,
    )


TAILS = (0.99, 0.95)
FEWEST_BLOCKS = 4  # below, Student's t is wider than any tail


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """Compare the far tails of two samples that were drawn in the same blocks.

    If the arm's quantile is *times* the reference's, the arm's values divided by *times* have a
    quantile in common with the reference's: equal shares of both lie above it, but for chance.
    How the difference of these shares varies from block to block measures that chance.
    """

    q: float
    turns: float  # independent ones
    ratio: float  # of the arm's quantile to the reference's
    # values and blocks (0, 1, …), reference and arm
    samples: tuple[tuple[Floats, Ints], tuple[Floats, Ints]]

    def p_longer(self, times: float) -> float:
        """Return the one-sided p-value that the arm's quantile is above *times* the other's."""
        (theirs, at), (mine, on) = self.samples
        pooled = np.concatenate([theirs, mine / times])
        bound = np.partition(pooled, rank := math.ceil(self.q * pooled.size) - 1)[rank]
        blocks = int(max(at.max(), on.max())) + 1
        above = [
            np.bincount(where, weights=values > bound, minlength=blocks) / values.size
            for values, where in ((theirs, at), (mine / times, on))
        ]
        more = above[1] - above[0]
        error = float(more.std(ddof=1))
        if not error or not math.isfinite(bound):
            return 1.0
        return float(scipy.stats.t.sf(float(more.mean()) / error * math.sqrt(blocks), blocks - 1))

    def least(self, level: float) -> float:
        """Return the least ratio that the samples leave possible, at a one-sided *level*."""
        low, high = 0.0, math.log(max(self.ratio, 1.01)) + 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self.p_longer(math.exp(middle)) <= level else (low, middle)
            )
        return math.exp(low)


def independent(values: Floats, blocks: Ints, q: float) -> float:
    """Return how many independent turns a sample has for bounding quantile *q*.

    Turns of one block (0, 1, …) resemble each other.
    """
    above = (values > np.quantile(values, q, method="inverted_cdf")).astype(np.float64)
    share, count = float(above.mean()), values.size
    if not 0 < share < 1 or not blocks.max():
        return float(count if share else 0)
    return count / max(1.0, cluster_variance(above, blocks) * count / (share * (1 - share)))


def tails(
    reference: Floats, reference_blocks: Ints, arm: Floats, arm_blocks: Ints
) -> tuple[tuple[Tail, ...], float]:
    """Return the tails that both samples bound, and the independent turns of the nearest.

    Infinite values are turns that never ended.
    """
    blocks = np.intersect1d(np.unique(reference_blocks), np.unique(arm_blocks), assume_unique=True)
    samples = []
    for values, where in ((reference, reference_blocks), (arm, arm_blocks)):
        at = np.minimum(np.searchsorted(blocks, where), max(blocks.size - 1, 0))
        seen = (
            ~np.isnan(values) & (blocks[at] == where)
            if blocks.size
            else np.zeros(values.size, dtype=bool)
        )
        samples.append((values[seen], at[seen].astype(np.int64)))
    both, turns, found = (samples[0], samples[1]), 0.0, []
    if blocks.size < FEWEST_BLOCKS or not all(values.size for values, _ in both):
        return (), turns
    for q in TAILS:
        turns = min(independent(values, where, q) for values, where in both)
        if turns < least_sessions(q):
            continue
        ends = [float(np.quantile(values, q, method="inverted_cdf")) for values, _ in both]
        ratio = ends[1] / ends[0] if math.isfinite(ends[0]) and ends[0] > 0 else 1.0
        found.append(Tail(q=q, turns=turns, ratio=ratio, samples=both))
    return tuple(found), turns
