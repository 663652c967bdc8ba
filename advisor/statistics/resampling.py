"""Bootstrap whole units: restarts where they differ, else block pairs; what lies below a unit stays whole.

Resampling sessions inside resampled pairs as well would count their noise twice (Davison & Hinkley 1997, section 3.8), so only the
highest level that carries variance of its own is drawn. The standard error of the draws is widened by sqrt(n / (n - 1)) and read against
Student's t, which repairs the narrowness of the bootstrap with few units (Hesterberg 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints

DRAWS = 2000
SEED = 20260422  # fixed: equal evidence gives an equal decision
RESTARTS_DIFFER = 0.25  # F test between restarts; a test that decides on pooling has to err towards not pooling (Bancroft 1964)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Hold the sampling distribution of one statistic: its value, standard error and degrees of freedom."""

    value: float
    se: float
    df: int
    units: int
    unit_name: str

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided interval at *level*."""
        reach = float(special.stdtrit(self.df, 0.5 + level / 2)) * self.se
        return self.value - reach, self.value + reach

    def estimate(self, *, unit: str, method: str, level: float = 0.95) -> Estimate:
        """Return the value with its interval at *level*."""
        low, high = self.interval(level)
        return Estimate(value=self.value, low=low, high=high, n=self.units, unit=unit, method=method, level=level)

    def p_below(self, bound: float) -> float:
        """Return the one-sided p-value of the claim that the truth lies below *bound*."""
        return self._tail(bound - self.value)

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of the claim that the truth lies above *bound*."""
        return self._tail(self.value - bound)

    def _tail(self, distance: float) -> float:
        if self.se == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.df, -distance / self.se))

    def relative(self, *, unit: str, method: str, level: float = 0.95) -> Estimate:
        """Return a log ratio as a relative change, arm / reference - 1."""
        low, value, high = (float(np.expm1(each)) for each in (self.interval(level)[0], self.value, self.interval(level)[1]))
        return Estimate(value=value, low=low, high=high, n=self.units, unit=unit, method=f"{method}, {self.unit_name}", level=level)


def cluster_variance(values: Floats, index: Ints) -> float:
    """Return the variance of the mean of *values* where the rows of a cluster (0, 1, …) share its luck; two clusters at least."""
    sums = np.bincount(index, weights=values - values.mean())
    return sums.size / (sums.size - 1) * float(sums @ sums) / values.size**2


def restarts_differ(values: Floats, restart: Ints, *, lost: int = 1) -> bool:
    """Say whether restarts carry more variance than the pairs within them explain; *lost* parameters were fitted between restarts."""
    names, index = np.unique(restart, return_inverse=True)
    counts = np.bincount(index)
    groups, n = len(names), values.size
    if groups <= lost or n - groups < 2:
        return False
    means = np.bincount(index, weights=values) / counts
    between = float(np.sum(counts * (means - values.mean()) ** 2)) / (groups - lost)
    within = float(np.sum((values - means[index]) ** 2)) / (n - groups)
    return within > 0 and float(special.fdtrc(groups - lost, n - groups, between / within)) < RESTARTS_DIFFER


def draw_weights(n: int, restart: Ints | None = None, *, draws: int = DRAWS) -> Floats:
    """Return how often each of *n* pairs is taken, one row a draw; with *restart*, whole restarts are drawn instead."""
    rng = np.random.default_rng(SEED)
    names, index = (np.arange(n), np.arange(n)) if restart is None else np.unique(restart, return_inverse=True)
    taken = rng.integers(0, len(names), size=(draws, len(names)))
    flat = (taken + len(names) * np.arange(draws)[:, None]).ravel()
    counts = np.bincount(flat, minlength=draws * len(names)).reshape(draws, len(names))
    return counts[:, index].astype(np.float64)


def spread(value: float, drawn: Floats, *, units: int, lost: int = 1, unit_name: str = "block pairs") -> Spread:
    """Return the distribution behind *drawn* values of a statistic over *units* units, *lost* degrees of freedom spent."""
    usable = drawn[np.isfinite(drawn)]
    df = max(units - lost, 1)
    se = float(np.std(usable)) * float(np.sqrt(units / df)) if usable.size else float("inf")
    return Spread(value=value, se=se, df=df, units=units, unit_name=unit_name)


def noise_floor(control: Spread) -> float:
    """Return the largest relative change that the A/A control leaves possible between equal sides."""
    low, high = control.interval()
    return max(abs(math.expm1(low)), abs(math.expm1(high)))
