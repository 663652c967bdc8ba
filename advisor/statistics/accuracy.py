"""Compare paired answers: by Tango's interval, by exact McNemar, and by cluster means.

Tango's score interval is for the difference, McNemar for "changed", cluster means for graded
scores. With paired items a Wald interval covers 76 % at n = 50 where it claims 95; Tango's covers
96 to 99 (Tango 1998, Fagerland et al. 2014). A small shift in one direction that no single bucket
can show is looked for by the sign test over buckets and by the trend over length.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics.resampling import cluster_variance
from advisor.statistics.spread import Spread

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
        alone = self.reference_only + self.arm_only - self.n * self.value**2
        return 1 + (self.together + PRIOR * self.beside) / (alone + PRIOR)

    @property
    def value(self) -> float:
        """Return the difference in the share of right answers, arm minus reference."""
        return (self.arm_only - self.reference_only) / self.n

    def tail(self, score: float) -> float:
        """Return the chance of a score below this one."""
        return float(
            scipy.special.ndtr(score) if self.df is None else scipy.special.stdtr(self.df, score)
        )

    def reach(self, level: float) -> float:
        """Return how far an interval at a two-sided *level* reaches, in standard errors."""
        half = 0.5 + level / 2
        return float(
            scipy.special.ndtri(half) if self.df is None else scipy.special.stdtrit(self.df, half)
        )


def counts(difference: Floats, clusters: Ints, weights: Floats | None = None) -> AnswerCounts:
    """Count answers of which some share a context (a cluster) or weigh more than others.

    Answers that differ together are counted as they were seen, less what chance would put
    together. Where a hypothesis needs more of them to differ than were seen, each is assumed to
    resemble the rest of its context by `RESEMBLANCE`. Agreement thus counts as evidence: a further
    equal answer never makes an arm less safe, and a lost one never makes it safer. A single
    correlation of all answers would fall with a loss that stands alone.
    """
    size = difference.size
    lost, won = difference < 0, difference > 0
    index = np.unique(clusters, return_inverse=True)[1]
    groups = int(index.max()) + 1
    if groups == size and weights is None:
        return AnswerCounts(reference_only=float(lost.sum()), arm_only=float(won.sum()), n=size)
    weight = np.ones(size) if weights is None else weights * (size / weights.sum())
    square = float(weight @ weight)
    unit = square / size  # Kish: rows that are worth one of equal weight
    n, down, up = size / unit, float(weight @ lost) / unit, float(weight @ won) / unit
    sums, lost_sums, won_sums = (
        np.bincount(index, weights=weight * each) for each in (np.ones(size), lost, won)
    )
    alike = (down * (down - 1) + up * (up - 1)) / (n * (n - 1)) if n > 1 else 0.0
    chance = (float(sums @ sums) - square) * max(0.0, alike)
    seen = (float(lost_sums @ lost_sums + won_sums @ won_sums) - chance) / unit**2
    return AnswerCounts(
        reference_only=down,
        arm_only=up,
        n=n,
        together=max(0.0, seen - down - up),
        beside=RESEMBLANCE * (float(sums @ sums) / square - 1),
        df=groups - 1 + PRIOR if groups < size else None,
    )


def _under(found: AnswerCounts, difference: float) -> tuple[float, float]:
    """Return variance and third moment of won - lost if *difference* is true (Tango 1998).

    *difference* is that of the shares of right answers, arm minus reference.
    """
    n, changed = found.n, found.reference_only + found.arm_only
    linear = -changed + (2 * n - found.arm_only + found.reference_only) * difference
    constant = -found.reference_only * difference * (1 - difference)
    lost = (math.sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
    differ = 2 * lost + difference
    variance, third = (
        n * (differ - difference**2),
        n * difference * (1 - 3 * differ + 2 * difference**2),
    )
    wider = variance + found.together + found.beside * max(0.0, n * differ - changed)
    return wider, third if variance <= 0 else third * (wider / variance) ** 2


def tango_z(found: AnswerCounts, difference: float) -> float:
    """Return Tango's score statistic for the hypothesis that arm - reference = *difference*."""
    gap = found.arm_only - found.reference_only - found.n * difference
    if gap == 0:
        return 0.0
    variance, _ = _under(found, difference)
    return math.copysign(math.inf, gap) if variance <= 0 else gap / math.sqrt(variance)


def tango(found: AnswerCounts, *, level: float = 0.95) -> Estimate:
    """Return the difference of the shares right, arm minus reference, with Tango's interval."""
    assert found.n > 0, "no paired items"
    value, reach = found.value, found.reach(level)

    def end(target: float, edge: float) -> float:
        def excess(difference: float) -> float:
            return max(min(tango_z(found, difference), 1e3), -1e3) - target

        inside, outside = value, edge * (1 - 1e-12)
        if excess(outside) * excess(inside) >= 0:
            return edge
        return float(
            scipy.optimize.brentq(excess, min(inside, outside), max(inside, outside), xtol=1e-10)
        )

    worth = max(1, round(found.n / found.effect))
    return Estimate(
        value=value,
        low=end(reach, -1.0),
        high=end(-reach, 1.0),
        n=worth,
        unit="share",
        method="paired items, Tango score interval",
        level=level,
    )


def p_not_worse(found: AnswerCounts, *, margin: float) -> float:
    """Return the one-sided p-value of the claim that the arm loses less than *margin*."""
    return found.tail(-tango_z(found, -margin))


def p_worse(found: AnswerCounts, *, margin: float) -> float:
    """Return the one-sided p-value of the claim that the arm loses more than *margin*.

    Where little more than the margin differs, won - lost is skewed: at a level of 0.45 %, the
    normal distribution calls 1 % of the arms at the margin worse. A transformation for the
    skewness (Hall 1992) corrects that. The p-value is never below Tango's own.
    """
    variance, third = _under(found, -margin)
    if variance <= 0:
        return 1.0
    score = (found.arm_only - found.reference_only + found.n * margin) / math.sqrt(variance)
    skewness = min(third / variance**1.5, -SYMMETRIC)
    return found.tail(
        max(score, skewness / 6 + 2 / skewness * (1 - (1 - skewness * score / 6) ** 3))
    )


def power(items: int, discordance: float, margin: float, *, level: float) -> float:
    """Return how often Tango's test shows "not worse by *margin*" where nothing is lost.

    *discordance* is the share of the items that differ.
    """
    enough, spread = float(scipy.special.ndtri(1 - level)), 8 * math.sqrt(items * discordance)
    differ = np.arange(
        max(0, math.floor(items * discordance - spread)),
        min(items, math.ceil(items * discordance + spread)) + 1,
    )

    def most_lost(changed: int) -> int:
        """Return how many of those that differ may be lost; -1 where none may."""

        def is_too_many(lost: int) -> bool:
            return (
                tango_z(
                    AnswerCounts(reference_only=lost, arm_only=changed - lost, n=items), -margin
                )
                < enough
            )

        return bisect_left(range(changed + 1), 1, key=is_too_many) - 1

    passing = scipy.stats.binom.cdf([most_lost(int(each)) for each in differ], differ, 0.5)
    return float(scipy.stats.binom.pmf(differ, items, discordance) @ passing)


def mcnemar(*, reference_only: int, arm_only: int) -> float:
    """Return the exact two-sided p-value that as many answers turned wrong as turned right."""
    changed = reference_only + arm_only
    return 1.0 if changed == 0 else float(scipy.stats.binomtest(arm_only, changed).pvalue)


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
    weight = (
        np.ones(difference.size) if weights is None else weights * (difference.size / weights.sum())
    )
    index = (
        np.arange(difference.size)
        if clusters is None
        else np.unique(clusters, return_inverse=True)[1]
    )
    groups = np.unique(index).size
    if groups < MIN_CLUSTERS:
        return None
    value = float((weight * difference).mean())
    se = math.sqrt(cluster_variance(weight * (difference - value), index))
    largest = float(np.abs(difference).max()) or 1.0
    least = float(weight @ weight) / difference.size
    return Spread(
        value=value,
        se=max(se, least * largest / groups),
        df=groups - 1,
        units=groups,
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
    p = 1.0 if down + up == 0 else float(scipy.stats.binomtest(down, down + up).pvalue)
    return Signs(down=down, up=up, still=len(differences) - down - up, p=p)


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
    root = np.sqrt(np.asarray(items, dtype=np.float64))
    design = np.stack([np.ones(len(lengths)), np.log2(np.asarray(lengths))], axis=1) * root[:, None]
    target = np.asarray(differences) * root
    (intercept, slope), *_ = np.linalg.lstsq(design, target, rcond=None)
    free = len(lengths) - 2
    left = target - design @ np.array([intercept, slope])
    error = float(np.sqrt(left @ left / free * np.linalg.inv(design.T @ design)[1, 1]))
    p = float(2 * scipy.stats.t.sf(abs(slope) / error, free)) if error > 0 else 0.0
    return float(slope), p
