"""Compare paired answers: by Tango's interval, by exact McNemar, and by cluster means.

Tango's score interval is for the difference, McNemar for "changed", cluster means for graded
scores. With paired items a Wald interval covers 76% at n = 50 where it claims 95; Tango's covers
96 to 99 (Tango 1998, Fagerland et al. 2014). A small shift in one direction that no single bucket
can show is looked for by the sign test over buckets and by the trend over length.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Bools, Floats, Ints
from advisor.statistics.groups import group_numbers
from advisor.statistics.quantiles import binomial
from advisor.statistics.resampling import cluster_variance
from advisor.statistics.spread import Spread, normal_reach, student_reach

MIN_CLUSTERS = 3
SYMMETRIC = 1e-6  # skewness below which there is nothing to correct
# correlation of answers behind one context, of those that have not differed yet
RESEMBLANCE: Final = 0.3
PRIOR: Final = 10  # answers that differ, or contexts, that what is assumed of contexts is worth


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """Count paired answers, as equally weighted ones where lengths weigh differently."""

    reference_only: float
    arm_only: float
    n: float
    # variance of (won - lost) beyond that of independent
    # answers: some differ together behind one context
    together: float = 0.0
    # what one more answer that differs would add to `together`:
    # the others of its context, as far as they resemble it
    beside: float = 0.0
    # Student's t takes the place of the normal distribution where contexts are what counts
    df: int | None = None

    @property
    def effect(self) -> float:
        """Return the design effect: how many answers one independent answer is worth.

        It is that of the answers that differed, joined by what is assumed of `PRIOR` more.
        """
        changed = self.reference_only + self.arm_only
        independent = changed - self.n * self.value**2
        surplus = self.together + PRIOR * self.beside
        return 1 + surplus / (independent + PRIOR)

    @property
    def value(self) -> float:
        """Return the difference in the share of right answers, arm minus reference."""
        return (self.arm_only - self.reference_only) / self.n

    def tail(self, score: float) -> float:
        """Return the chance of a score below this one."""
        if self.df is None:
            return float(scipy.special.ndtr(score))
        return float(scipy.special.stdtr(self.df, score))

    def reach(self, level: float) -> float:
        """Return how far an interval at a two-sided *level* reaches, in standard errors."""
        if self.df is None:
            return normal_reach(level)
        return student_reach(level, self.df)


def counts(difference: Floats, clusters: Ints, weights: Floats | None = None) -> AnswerCounts:
    """Count answers of which some share a context (a cluster) or weigh more than others."""
    return counts_in_contexts(difference, group_numbers(clusters), weights)


def counts_in_contexts(
    difference: Floats, context: Ints, weights: Floats | None = None
) -> AnswerCounts:
    """Count answers whose contexts have the numbers 0, 1, … without gaps.

    Answers that differ together are counted as they were seen, less what chance would put
    together. Where a hypothesis needs more of them to differ than were seen, each is assumed to
    resemble the rest of its context by `RESEMBLANCE`. Agreement thus counts as evidence: a further
    equal answer never makes an arm less safe, and a lost one never makes it safer. A single
    correlation of all answers would fall with a loss that stands alone.
    """
    size = difference.size
    is_lost = difference < 0
    is_won = difference > 0
    contexts = int(context.max()) + 1
    if contexts == size and weights is None:
        lost = float(is_lost.sum())
        won = float(is_won.sum())
        return AnswerCounts(reference_only=lost, arm_only=won, n=size)
    # Rows weigh 1 in the mean; by Kish, `unit` of them are worth one of equal weight.
    weight = _mean_one(weights, size)
    square = float(weight @ weight)
    unit = square / size
    n = size / unit
    lost = float(weight @ is_lost) / unit
    won = float(weight @ is_won) / unit

    def pairs_within(column: Floats | Bools) -> float:
        """Return the sum over contexts of the square of their weights in *column*."""
        of_context = np.bincount(context, weights=weight * column)
        return float(of_context @ of_context)

    # The variance of won - lost is the sum over pairs of rows of one context that
    # differ the same way; chance puts `alike` of all pairs of rows together.
    every_pair = pairs_within(np.ones(size))
    alike = 0.0
    if n > 1:
        same_way = lost * (lost - 1) + won * (won - 1)
        alike = max(0.0, same_way / (n * (n - 1)))
    by_chance = (every_pair - square) * alike
    together = pairs_within(is_lost) + pairs_within(is_won)
    variance = (together - by_chance) / unit**2
    return AnswerCounts(
        reference_only=lost,
        arm_only=won,
        n=n,
        together=max(0.0, variance - lost - won),
        beside=RESEMBLANCE * (every_pair / square - 1),
        df=contexts - 1 + PRIOR if contexts < size else None,
    )


def _mean_one(weights: Floats | None, size: int) -> Floats:
    """Return weights scaled to a mean of 1."""
    return np.ones(size) if weights is None else weights * (size / weights.sum())


def _under(found: AnswerCounts, difference: float) -> tuple[float, float]:
    """Return variance and third moment of won - lost if *difference* is true (Tango 1998).

    *difference* is that of the shares of right answers, arm minus reference. The likeliest share
    of lost answers under it, q, is the larger root of 2 n q^2 + linear q + constant = 0; then
    2 q + difference of all answers differ, and each adds its own variance. Contexts add theirs:
    what was seen together, and what the answers that differ beyond those seen would.
    """
    n = found.n
    changed = found.reference_only + found.arm_only
    linear = (2 * n - found.arm_only + found.reference_only) * difference - changed
    constant = -found.reference_only * difference * (1 - difference)
    discriminant = linear * linear - 8 * n * constant
    lost = (math.sqrt(max(discriminant, 0.0)) - linear) / (4 * n)
    differ = 2 * lost + difference
    square = difference**2
    variance = n * (differ - square)
    third = n * difference * (1 - 3 * differ + 2 * square)
    unseen = max(0.0, n * differ - changed)
    wider = variance + found.together + found.beside * unseen
    if variance <= 0:
        return wider, third
    return wider, third * (wider / variance) ** 2


def tango_z(found: AnswerCounts, difference: float) -> float:
    """Return Tango's score statistic for the hypothesis that arm - reference = *difference*."""
    gap = found.arm_only - found.reference_only - found.n * difference
    if gap == 0:
        return 0.0
    variance, _ = _under(found, difference)
    if variance <= 0:
        return math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


@lru_cache
def tango(found: AnswerCounts, *, level: float = 0.95) -> Estimate:
    """Return the difference of the shares right, arm minus reference, with Tango's interval."""
    assert found.n > 0, "no paired items"
    value = found.value
    reach = found.reach(level)
    return Estimate(
        value=value,
        low=_end(found, score=reach, edge=-1.0),
        high=_end(found, score=-reach, edge=1.0),
        n=max(1, round(found.n / found.effect)),
        unit="share",
        method="paired items, Tango score interval",
        level=level,
    )


def _end(found: AnswerCounts, *, score: float, edge: float) -> float:
    """Return the difference, between the one seen and *edge*, at which the statistic is *score*.

    It is *edge* where no difference is rejected.
    """

    def excess(difference: float) -> float:
        bounded = max(min(tango_z(found, difference), 1e3), -1e3)  # it may be infinite at an edge
        return bounded - score

    inside = found.value
    outside = edge * (1 - 1e-12)
    if excess(outside) * excess(inside) >= 0:
        return edge
    low, high = sorted((inside, outside))
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-10))


def p_not_worse(found: AnswerCounts, *, margin: float) -> float:
    """Return the one-sided p-value of the claim that the arm loses less than *margin*."""
    return found.tail(-tango_z(found, -margin))


def p_worse(found: AnswerCounts, *, margin: float) -> float:
    """Return the one-sided p-value of the claim that the arm loses more than *margin*.

    Where little more than the margin differs, won - lost is skewed: at a level of 0.45%, the
    normal distribution calls 1% of the arms at the margin worse. A transformation for the
    skewness (Hall 1992) corrects that. The p-value is never below Tango's own.
    """
    variance, third = _under(found, -margin)
    if variance <= 0:
        return 1.0
    gap = found.arm_only - found.reference_only + found.n * margin
    score = gap / math.sqrt(variance)
    skewness = min(third / variance**1.5, -SYMMETRIC)
    cubed = (1 - skewness * score / 6) ** 3
    corrected = skewness / 6 + 2 / skewness * (1 - cubed)
    return found.tail(max(score, corrected))


def power(items: int, discordance: float, margin: float, *, level: float) -> float:
    """Return how often Tango's test shows "not worse by *margin*" where nothing is lost.

    *discordance* is the share of the items that differ.
    """
    changed, chance = binomial(items, discordance)
    most = np.array(list(_most_lost(changed.tolist(), items, margin, level=level)))
    # None lost may be too many already.
    lost_no_more = scipy.special.bdtr(np.maximum(most, 0), changed, 0.5)
    passing = np.where(most < 0, 0.0, lost_no_more)
    return float(chance @ passing)


def _most_lost(numbers: Sequence[int], items: int, margin: float, *, level: float) -> Iterator[int]:
    """Yield how many of each number of changed items may be lost, "not worse" still shown.

    The numbers follow each other; -1 stands for none.
    """
    enough = float(scipy.special.ndtri(1 - level))

    def is_too_many(lost: int, changed: int) -> bool:
        found = AnswerCounts(reference_only=lost, arm_only=changed - lost, n=items)
        return tango_z(found, -margin) < enough

    first = numbers[0]
    # Ever more lost are too many from some number on.
    possible = range(first + 1)
    most = bisect_left(possible, 1, key=lambda lost: is_too_many(lost, first)) - 1
    for changed in numbers:
        # One more changed item allows one more lost one at most.
        if changed > first and not is_too_many(most + 1, changed):
            most += 1
        yield most


def mcnemar(*, reference_only: int, arm_only: int) -> float:
    """Return the exact two-sided p-value that as many answers turned wrong as turned right."""
    fewer = min(reference_only, arm_only)
    changed = reference_only + arm_only
    one_sided = float(scipy.special.bdtr(fewer, changed, 0.5))
    return min(1.0, 2 * one_sided)


def fisher(more: int, less: int, *, items: int) -> float:
    """Return the one-sided p-value that *more* of as many items are counted than *less*."""
    both = more + less
    most = min(both, items)
    # Of as many in all, what chance puts on the one side: hypergeometric.
    counted = np.arange(more, most + 1)
    ways = _log_ways(items, counted) + _log_ways(items, both - counted)
    all_ways = _log_ways(2 * items, np.array(both))
    chances = np.exp(ways - all_ways)
    return min(1.0, float(chances.sum()))


def _log_ways(items: int, chosen: Ints) -> Floats:
    """Return the log of how many ways there are to choose among items."""
    beta = scipy.special.betaln(items - chosen + 1, chosen + 1)
    return np.asarray(-beta - np.log(items + 1), dtype=np.float64)


def mean_difference(
    reference: Floats, arm: Floats, clusters: Ints | None = None, weights: Floats | None = None
) -> Spread | None:
    """Return the mean difference of graded scores, arm minus reference, over contexts.

    None with fewer than three contexts. Items of one context share its luck, so the cluster is the
    unit; the mean stays a mean over items (Miller 2024, arXiv 2411.00640). The error is never taken
    below that of one more context with the largest change seen, or with a full one where all
    scores agree: agreement has not shown that none can differ.
    """
    difference = arm - reference
    size = difference.size
    weight = _mean_one(weights, size)
    context = np.arange(size) if clusters is None else group_numbers(clusters)
    contexts = np.unique(context).size
    if contexts < MIN_CLUSTERS:
        return None
    value = float((weight * difference).mean())
    deviations = weight * (difference - value)
    error = math.sqrt(cluster_variance(deviations, context))
    # Of one more context: rows of unequal weight are worth fewer.
    largest = float(np.abs(difference).max()) or 1.0
    worth = float(weight @ weight) / size
    least_error = worth * largest / contexts
    return Spread(
        value=value,
        se=max(error, least_error),
        df=contexts - 1,
        units=contexts,
        unit_name="contexts",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Count the buckets that fell, rose and did not move.

    `p` is the two-sided p-value of a count as uneven.
    """

    down: int
    up: int
    still: int
    p: float

    @property
    def all_down(self) -> bool:
        """Say whether every bucket that moved fell."""
        return self.down > 0 and self.up == 0


def sign_test(differences: Sequence[float]) -> Signs:
    """Return the sign test over bucket differences; a difference of 0 carries no sign."""
    down = sum(each < 0 for each in differences)
    up = sum(each > 0 for each in differences)
    return Signs(
        down=down,
        up=up,
        still=len(differences) - down - up,
        p=mcnemar(reference_only=down, arm_only=up),
    )


def slope_per_doubling(
    lengths: Sequence[float], differences: Sequence[float], items: Sequence[float]
) -> tuple[float, float] | None:
    """Return the slope of the difference per doubling of length, and its two-sided p-value.

    None with fewer than three lengths. A bucket weighs as much as it has items; how far the
    buckets scatter about the line is its own error.
    """
    if len(set(lengths)) < 3:
        return None
    if len(set(differences)) == 1:
        return 0.0, 1.0
    # Weighted least squares: each row times the root of its weight.
    root = np.sqrt(items)
    design = np.stack([root, np.log2(lengths) * root], axis=1)
    target = np.asarray(differences) * root
    fitted, *_ = np.linalg.lstsq(design, target, rcond=None)
    slope = float(fitted[1])
    residual = target - design @ fitted
    df = len(lengths) - 2
    inverse = np.linalg.inv(design.T @ design)
    variance = residual @ residual / df * inverse[1, 1]
    error = math.sqrt(variance)
    if error == 0:
        return slope, 0.0
    one_sided = scipy.special.stdtr(df, -abs(slope) / error)
    return slope, float(2 * one_sided)
