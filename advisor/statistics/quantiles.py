"""Bound a quantile by order statistics, and refuse where the sample cannot bound it.

No distribution is assumed. Calls of one session resemble each other, so the count behind the
binomial is the effective one: calls divided by the design effect of the indicator "at or below the
quantile" (Woodruff 1952). Refusal counts sessions: p99 needs 299 of them for a one-sided 95%
bound.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics.groups import group_numbers
from advisor.statistics.resampling import cluster_variance
from advisor.statistics.spread import normal_reach

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
    values = values[seen]
    clusters = clusters[seen]
    if not values.size:
        return None
    index = group_numbers(clusters)
    sessions = int(index.max()) + 1
    if sessions < least_sessions(q):
        return None
    ordered = np.sort(values)
    n = ordered.size
    value = float(ordered[_rank(q, n)])
    if not math.isfinite(value):
        return None
    is_below = (values <= value).astype(np.float64)
    effect = 1.0 if sessions in (1, n) else _design_effect(is_below, index, q)
    effective = max(1.0, n / effect)
    # How many of the effective calls lie below the quantile is binomial.
    count = round(effective)
    fewest = binomial_quantile((1 - level) / 2, count, q)
    most = binomial_quantile((1 + level) / 2, count, q)
    first = math.floor(fewest / count * n) - 1
    last = math.ceil(most / count * n)
    high = ordered[last] if last < n else np.inf
    return Estimate(
        value=value,
        low=float(ordered[first]) if first >= 0 else None,
        high=float(high) if math.isfinite(high) else None,
        n=sessions,
        unit=unit,
        method=f"order statistics of {n} calls in {sessions} sessions, effective {effective:.0f}",
        level=level,
    )


def binomial_quantile(level: float, trials: int, chance: float) -> int:
    """Return the fewest successes that are not exceeded with a probability of *level* or more."""
    successes, probabilities = binomial(trials, chance)
    return int(successes[np.searchsorted(np.cumsum(probabilities), level)])


def binomial(trials: int, chance: float) -> tuple[Ints, Floats]:
    """Return the numbers of successes that are likely enough to count, and how likely each is.

    These lie within eight standard deviations of the mean.
    """
    mean = trials * chance
    if not 0 < chance < 1:
        return np.array([round(mean)]), np.ones(1)
    reach = 8 * math.sqrt(mean * (1 - chance)) + 8
    first = max(0, math.floor(mean - reach))
    last = min(trials, math.ceil(mean + reach))
    successes = np.arange(first, last + 1)
    # Each probability over the one before.
    later = successes[1:]
    ratios = (trials + 1 - later) / later * (chance / (1 - chance))
    steps = np.cumsum(np.log(ratios))
    logs = np.concatenate([[0.0], steps])
    probabilities = np.exp(logs - logs.max())
    return successes, probabilities / probabilities.sum()


def wilson(successes: int, trials: int, *, level: float) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    share = successes / trials
    z2 = normal_reach(level) ** 2
    middle = share + z2 / (2 * trials)
    variance = share * (1 - share) / trials + z2 / (4 * trials**2)
    reach = math.sqrt(z2 * variance)
    whole = 1 + z2 / trials
    low = (middle - reach) / whole if successes else 0.0
    high = (middle + reach) / whole if successes < trials else 1.0
    return low, high


def _rank(q: float, n: int) -> int:
    """Return the place of quantile *q* among *n* ordered values, from 0."""
    return min(n, math.ceil(q * n)) - 1


def _design_effect(indicator: Floats, clusters: Ints, share: float) -> float:
    """Return how many clustered rows are worth an independent one, 1 at least.

    It is the variance of the mean of the indicator over that of independent rows, p (1 - p) / n.
    """
    independent_variance = share * (1 - share) / indicator.size
    return max(1.0, cluster_variance(indicator, clusters) / independent_variance)


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
        """Return the one-sided p-value that the arm's quantile is above *times* the other's.

        It is Student's t over blocks, of the difference of the shares above the pooled quantile.
        """
        (theirs, their_blocks), (mine, my_blocks) = self.samples
        scaled = mine / times
        pooled = np.concatenate([theirs, scaled])
        rank = math.ceil(self.q * pooled.size) - 1
        bound = np.partition(pooled, rank)[rank]
        blocks = int(max(their_blocks.max(), my_blocks.max())) + 1

        def share_above(values: Floats, block: Ints) -> Floats:
            """Return which share of a sample lies above the bound, block by block."""
            above = np.bincount(block, weights=values > bound, minlength=blocks)
            return above / values.size

        more = share_above(scaled, my_blocks) - share_above(theirs, their_blocks)
        deviation = float(more.std(ddof=1))
        if not deviation or not math.isfinite(bound):
            return 1.0
        score = float(more.mean()) / deviation * math.sqrt(blocks)
        return float(scipy.special.stdtr(blocks - 1, -score))

    def least(self, level: float) -> float:
        """Return the least ratio that the samples leave possible, at a one-sided *level*.

        It is found by bisection of the log, between no change and far above the ratio seen.
        """
        low = 0.0
        high = math.log(max(self.ratio, 1.01)) + 1.0
        for _ in range(20):
            middle = (low + high) / 2
            if self.p_longer(math.exp(middle)) <= level:
                low = middle
            else:
                high = middle
        return math.exp(low)


def independent(values: Floats, blocks: Ints, q: float) -> float:
    """Return how many independent turns a sample has for bounding quantile *q*.

    Turns of one block (0, 1, …) resemble each other.
    """
    is_above = (values > _end(values, q)).astype(np.float64)
    share = float(is_above.mean())
    if not 0 < share < 1 or not blocks.max():
        return float(values.size if share else 0)
    return values.size / _design_effect(is_above, blocks, share)


def tails(
    reference: Floats, reference_blocks: Ints, arm: Floats, arm_blocks: Ints
) -> tuple[tuple[Tail, ...], float]:
    """Return the tails that both samples bound, and the independent turns of the nearest.

    Infinite values are turns that never ended.
    """
    blocks = np.intersect1d(reference_blocks, arm_blocks)
    theirs = _in_blocks(reference, reference_blocks, blocks)
    mine = _in_blocks(arm, arm_blocks, blocks)
    samples = (theirs, mine)
    if blocks.size < FEWEST_BLOCKS or any(values.size == 0 for values, _ in samples):
        return (), 0.0
    turns = 0.0
    found = []
    for q in TAILS:
        turns = min(independent(*sample, q) for sample in samples)
        if turns < least_sessions(q):
            continue
        their_end, my_end = (_end(values, q) for values, _ in samples)
        is_known = math.isfinite(their_end) and their_end > 0
        ratio = my_end / their_end if is_known else 1.0
        found.append(Tail(q=q, turns=turns, ratio=ratio, samples=samples))
    return tuple(found), turns


def _end(values: Floats, q: float) -> float:
    """Return quantile *q* of *values*: one of them, so that infinite ones count."""
    return float(np.quantile(values, q, method="inverted_cdf"))


def _in_blocks(values: Floats, where: Ints, blocks: Ints) -> tuple[Floats, Ints]:
    """Return the known values in *blocks*, each with the number of its block from 0."""
    is_known = ~np.isnan(values)
    seen = is_known & np.isin(where, blocks)
    numbers = np.searchsorted(blocks, where[seen])
    return values[seen], numbers.astype(np.int64)
