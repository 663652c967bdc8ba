"""Compare paired answers: Tango's score interval for the difference, exact McNemar for "changed", cluster means for graded scores.

With paired items a Wald interval covers 76 % at n = 50 where it claims 95; Tango's covers 96 to 99 (Tango 1998, Fagerland et al. 2014).
A small shift in one direction that no single bucket can show is looked for by the sign test over buckets and by the trend over length.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics.resampling import cluster_variance
from advisor.statistics.spread import Spread

MIN_CLUSTERS = 3
SYMMETRIC = 1e-6  # skewness below which there is nothing to correct


def _under(difference: float, *, reference_only: float, arm_only: float, n: float) -> tuple[float, float]:
    """Return the variance and third moment of won minus lost where the shares of right answers differ by *difference* (Tango 1998)."""
    two_n = 2 * n
    linear = -arm_only - reference_only + (two_n - arm_only + reference_only) * difference
    constant = -reference_only * difference * (1 - difference)
    lost = (math.sqrt(max(linear * linear - 4 * two_n * constant, 0.0)) - linear) / (2 * two_n)
    differ = 2 * lost + difference
    return n * (differ - difference**2), n * difference * (1 - 3 * differ + 2 * difference**2)


def tango_z(*, reference_only: float, arm_only: float, n: float, difference: float) -> float:
    """Return Tango's score statistic for the hypothesis that arm - reference equals *difference*."""
    gap = arm_only - reference_only - n * difference
    if gap == 0:
        return 0.0
    variance, _ = _under(difference, reference_only=reference_only, arm_only=arm_only, n=n)
    return math.copysign(math.inf, gap) if variance <= 0 else gap / math.sqrt(variance)


def tango(*, reference_only: float, arm_only: float, n: float, level: float = 0.95, df: int | None = None) -> Estimate:
    """Return the difference in the share of right answers, arm minus reference, with Tango's interval; counts may be effective ones.

    With *df*, the contexts less one where several items share each, Student's t takes the place of the normal distribution.
    """
    assert n > 0, "no paired items"
    value = (arm_only - reference_only) / n
    z = float(scipy.special.ndtri(0.5 + level / 2) if df is None else scipy.special.stdtrit(max(1, df), 0.5 + level / 2))

    def end(target: float, edge: float) -> float:
        def excess(difference: float) -> float:
            score = tango_z(reference_only=reference_only, arm_only=arm_only, n=n, difference=difference)
            return max(min(score, 1e3), -1e3) - target

        inside, outside = value, edge * (1 - 1e-12)
        if excess(outside) * excess(inside) >= 0:
            return edge
        return float(scipy.optimize.brentq(excess, min(inside, outside), max(inside, outside), xtol=1e-10))

    return Estimate(
        value=value, low=end(z, -1.0), high=end(-z, 1.0), n=round(n), unit="share", method="paired items, Tango score interval", level=level
    )


def p_not_worse(*, reference_only: float, arm_only: float, n: float, margin: float, df: int | None = None) -> float:
    """Return the one-sided p-value of the claim that the arm loses less than *margin*."""
    return _below(-tango_z(reference_only=reference_only, arm_only=arm_only, n=n, difference=-margin), df)


def p_worse(*, reference_only: float, arm_only: float, n: float, margin: float, df: int | None = None) -> float:
    """Return the one-sided p-value of the claim that the arm loses more than *margin*; never below Tango's own.

    Where little more differs than the margin, losses are few and rare ones many: at a level of 0.45 %, the normal distribution calls 1 %
    of the arms at the margin worse. A transformation for the skewness (Hall 1992) takes that back.
    """
    variance, third = _under(-margin, reference_only=reference_only, arm_only=arm_only, n=n)
    if variance <= 0:
        return 1.0
    score = (arm_only - reference_only + n * margin) / math.sqrt(variance)
    skewness = min(third / variance**1.5, -SYMMETRIC)
    return _below(max(score, skewness / 6 + 2 / skewness * (1 - (1 - skewness * score / 6) ** 3)), df)


def _below(z: float, df: int | None) -> float:
    return float(scipy.special.ndtr(z) if df is None else scipy.special.stdtr(max(1, df), z))


def power(items: int, discordance: float, margin: float, *, level: float) -> float:
    """Return how often Tango's test shows "not worse by *margin*" where nothing is lost and such a share of the items differs."""
    enough, spread = float(scipy.special.ndtri(1 - level)), 8 * math.sqrt(items * discordance)
    differ = np.arange(max(0, math.floor(items * discordance - spread)), min(items, math.ceil(items * discordance + spread)) + 1)

    def most_lost(changed: int) -> int:
        """Return how many of those that differ may be lost; -1 where none may."""

        def is_too_many(lost: int) -> bool:
            return tango_z(reference_only=lost, arm_only=changed - lost, n=items, difference=-margin) < enough

        return bisect_left(range(changed + 1), 1, key=is_too_many) - 1

    passing = scipy.stats.binom.cdf([most_lost(int(each)) for each in differ], differ, 0.5)
    return float(scipy.stats.binom.pmf(differ, items, discordance) @ passing)


def mcnemar(*, reference_only: int, arm_only: int) -> float:
    """Return the exact two-sided p-value that as many answers turned wrong as turned right."""
    changed = reference_only + arm_only
    return 1.0 if changed == 0 else float(scipy.stats.binomtest(arm_only, changed).pvalue)


def design_effect(difference: Floats, clusters: Ints, weights: Floats | None = None) -> float:
    """Return how many times fewer independent items stand behind *difference* than rows: 1 without clusters and *weights*.

    Where no answer differs there is no variance to compare, and the clusters themselves are counted.
    """
    index = np.unique(clusters, return_inverse=True)[1]
    size, groups = difference.size, int(index.max()) + 1
    weight = np.ones(size) if weights is None else weights * (size / weights.sum())
    centred = difference - weight @ difference / size
    alone = float((weight * centred) @ centred)
    least = float(weight @ weight) / size
    if groups == size and weights is None:
        return 1.0
    if alone == 0 or groups < MIN_CLUSTERS:
        return least * size / groups
    return max(least, cluster_variance(weight * centred, index) * size**2 / alone)


def graded(reference: Floats, arm: Floats, clusters: Ints | None = None, weights: Floats | None = None) -> Spread | None:
    """Return the mean difference of graded scores over contexts, arm minus reference, or None with fewer than three contexts.

    Items of one context share its luck, so the cluster is the unit; the mean stays a mean over items (Miller 2024, arXiv 2411.00640). The
    error is never taken below that of one more context with the largest change seen, or with a full one where all scores agree: agreement
    has not shown that none can differ.
    """
    difference = arm - reference
    weight = np.ones(difference.size) if weights is None else weights * (difference.size / weights.sum())
    index = np.arange(difference.size) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    groups = np.unique(index).size
    if groups < MIN_CLUSTERS:
        return None
    value = float((weight * difference).mean())
    se = math.sqrt(cluster_variance(weight * (difference - value), index))
    largest = float(np.abs(difference).max()) or 1.0
    least = float(weight @ weight) / difference.size
    return Spread(value=value, se=max(se, least * largest / groups), df=groups - 1, units=groups, unit_name="contexts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Count the buckets that fell, rose and did not move, with the two-sided p-value of so uneven a count."""

    down: int
    up: int
    still: int
    p: float

    @property
    def all_down(self) -> bool:
        """Say whether every bucket that moved fell."""
        return self.down > 0 and self.up == 0


def sign_test(differences: Sequence[float]) -> Signs:
    """Return the sign test over bucket differences; buckets without a difference carry no sign."""
    down = sum(each < 0 for each in differences)
    up = sum(each > 0 for each in differences)
    p = 1.0 if down + up == 0 else float(scipy.stats.binomtest(down, down + up).pvalue)
    return Signs(down=down, up=up, still=len(differences) - down - up, p=p)


def slope_per_doubling(lengths: Sequence[float], differences: Sequence[float], items: Sequence[float]) -> tuple[float, float] | None:
    """Return the slope of the difference per doubling of length and its two-sided p-value, or None with fewer than three lengths.

    A bucket weighs as much as it has items; how far the buckets scatter about the line is its own error.
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
