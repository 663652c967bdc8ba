"""Fit a line through a grid by weighted least squares, with an error that comes from block pairs, not from residuals.

Each pair covers all lengths, so each pair gives a line of its own; their mean is the fit and their scatter its covariance, whatever
drifts or correlates inside a pair. With fewer than three pairs the residuals have to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from advisor.evidence import Floats
from advisor.statistics.grid import Grid

MIN_PAIRS = 3
MIN_LENGTHS = 3
BENT = 0.05  # lack-of-fit level


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Hold intercept + slope * length with its covariance."""

    intercept: float
    slope: float
    var_intercept: float
    var_slope: float
    covariance: float
    df: int
    pairs: int
    lengths: int
    lack_of_fit_p: float | None

    @property
    def slope_z(self) -> float:
        """Return the slope over its standard error."""
        return float(np.sign(self.slope)) * np.inf if self.var_slope == 0 else self.slope / float(np.sqrt(self.var_slope))

    def at(self, length: float) -> tuple[float, float]:
        """Return the line's value at *length* and its standard error."""
        variance = self.var_intercept + 2 * length * self.covariance + length**2 * self.var_slope
        return self.intercept + self.slope * length, float(np.sqrt(max(variance, 0.0)))

    def reach(self, level: float = 0.95) -> float:
        """Return Student's two-sided quantile at *level*."""
        return float(special.stdtrit(self.df, 0.5 + level / 2))


def _solve(x: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients of each row of *y* and the inverse normal matrix; x is scaled by its largest value."""
    design = np.stack([np.ones_like(x), x], axis=1)
    inverse: Floats = np.linalg.inv(design.T @ (weights[:, None] * design)).astype(np.float64)
    coefficients: Floats = y @ (weights[:, None] * design) @ inverse
    return coefficients, inverse


def _lack_of_fit(residuals: Floats, weights: Floats) -> float | None:
    """Return the p-value that the residuals at a length are alike from pair to pair only by chance."""
    pairs, lengths = residuals.shape
    if pairs < 2 or lengths < 3:
        return None
    mean = residuals.mean(axis=0)
    bend = pairs * float(weights @ mean**2) / (lengths - 2)
    noise = float(np.sum(weights * (residuals - mean) ** 2)) / ((pairs - 1) * (lengths - 2))
    if noise == 0:
        return 1.0 if bend == 0 else 0.0
    return float(stats.f.sf(bend / noise, lengths - 2, (pairs - 1) * (lengths - 2)))


def fit(grid: Grid, scale: Floats) -> Line | None:
    """Return the line through *grid*, or None with fewer than three lengths; *scale* is the noise scale at each length.

    Lengths or pairs with an empty cell are left out, whichever costs less. A fit that bends gets the error of its bend as well.
    """
    filled = np.isfinite(grid.values)
    columns = filled.mean(axis=0) > 0.5
    rows = filled[:, columns].all(axis=1)
    if not rows.any():
        rows = np.ones(len(grid.pairs), dtype=bool)
        columns = filled.all(axis=0)
    values, x = grid.values[np.ix_(rows, columns)], grid.lengths[columns]
    pairs, lengths = values.shape
    if lengths < MIN_LENGTHS or pairs < 1:
        return None
    unit = float(x.max())
    weights = 1 / scale[columns] ** 2
    by_pair, inverse = _solve(x / unit, values, weights)
    mean = by_pair.mean(axis=0)
    residuals = values - by_pair @ np.stack([np.ones_like(x), x / unit])
    bend_p = _lack_of_fit(residuals, weights)
    middle = residuals.mean(axis=0)
    bend = inverse * float(weights @ middle**2) / (lengths - 2)
    covariance, df = bend, lengths - 2
    if pairs >= MIN_PAIRS:
        covariance, df = np.cov(by_pair.T) / pairs, pairs - 1
        if bend_p is not None and bend_p < BENT:
            covariance, df = covariance + bend, min(df, lengths - 2)
    return Line(
        intercept=float(mean[0]),
        slope=float(mean[1]) / unit,
        var_intercept=float(covariance[0, 0]),
        var_slope=float(covariance[1, 1]) / unit**2,
        covariance=float(covariance[0, 1]) / unit,
        df=df,
        pairs=pairs,
        lengths=lengths,
        lack_of_fit_p=bend_p,
    )
