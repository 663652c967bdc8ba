"""Lay a sweep on a grid and fit lines whose errors come from block pairs, not residuals.

A grid has one row a block pair, one column a length, the median in each cell. Each pair covers
all lengths, so each pair gives a line of its own; their mean is the fit and their scatter its
covariance, whatever drifts or correlates inside a pair. With fewer than three pairs the
residuals have to do. Token latency is fitted two ways, to say when a line is the wrong picture.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Bools, Floats, Ints
from advisor.statistics.groups import group_medians
from advisor.statistics.spread import student_reach
from advisor.verdict import ItlLine

MIN_PAIRS = 3
MIN_LENGTHS = 3
BENT = 0.05  # lack-of-fit level
# lengths within 2% of their neighbour are one planned length; template tokens differ by a few
SAME_LENGTH = 0.02
# least squares and Theil-Sen further apart than this: outliers or a bend decide the slope
DISAGREE = 0.10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Hold medians by block pair (rows) and length (columns); NaN where a cell is empty."""

    pairs: Ints
    lengths: Floats
    values: Floats

    def medians(self) -> Floats:
        """Return the median over pairs at each length."""
        return np.nanmedian(self.values, axis=0)


def length_index(lengths: Floats) -> tuple[Ints, Floats]:
    """Return the column of each row and the mean length of each column."""
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    apart = SAME_LENGTH * np.maximum(ordered[:-1], 1.0)
    begins_column = np.diff(ordered) > apart
    columns = np.concatenate([[0], np.cumsum(begins_column)])
    index = np.empty(lengths.size, dtype=np.int64)
    index[order] = columns
    total = np.bincount(index, weights=lengths)
    return index, total / np.bincount(index)


def on_grid(pair: Ints, lengths: Floats, values: Floats) -> Grid:
    """Return the grid of *values*; rows that are not finite are left out."""
    seen = np.isfinite(values) & np.isfinite(lengths)
    pairs, row = np.unique(pair[seen], return_inverse=True)
    column, centres = length_index(lengths[seen])
    cells, cell = np.unique(row * centres.size + column, return_inverse=True)
    table = np.full((pairs.size, centres.size), np.nan)
    table.flat[cells] = group_medians(cell, values[seen])
    return Grid(pairs=pairs, lengths=centres, values=table)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
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

    @classmethod
    def of(
        cls,
        coefficients: Floats,
        covariance: Floats,
        *,
        unit: float,
        df: int,
        pairs: int,
        lengths: int = 0,
        lack_of_fit_p: float | None = None,
    ) -> "FittedLine":
        """Return a line from its intercept and its slope per *unit* of length."""
        return cls(
            intercept=float(coefficients[0]),
            slope=float(coefficients[1]) / unit,
            var_intercept=float(covariance[0, 0]),
            var_slope=float(covariance[1, 1]) / unit**2,
            covariance=float(covariance[0, 1]) / unit,
            df=df,
            pairs=pairs,
            lengths=lengths,
            lack_of_fit_p=lack_of_fit_p,
        )

    @property
    def slope_z(self) -> float:
        """Return the slope over its standard error."""
        if self.var_slope == 0:
            return float(np.sign(self.slope)) * np.inf
        return self.slope / float(np.sqrt(self.var_slope))

    def at(self, length: float) -> tuple[float, float]:
        """Return the line's value at *length* and its standard error."""
        value = self.intercept + self.slope * length
        shared = 2 * length * self.covariance
        variance = self.var_intercept + shared + length**2 * self.var_slope
        error = np.sqrt(max(variance, 0.0))
        return value, float(error)

    def reach(self, level: float = 0.95) -> float:
        """Return Student's two-sided quantile at *level*."""
        return student_reach(level, self.df)


def _solve(x: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the coefficients of each row of *y* and the inverse normal matrix.

    The caller scales *x* by its largest value.
    """
    design = np.stack([np.ones_like(x), x], axis=1)
    weighted = weights[:, None] * design
    normal = design.T @ weighted
    inverse: Floats = np.linalg.inv(normal).astype(np.float64)
    coefficients: Floats = y @ weighted @ inverse
    return coefficients, inverse


def _lack_of_fit(residuals: Floats, weights: Floats) -> float | None:
    """Return the p-value of a bend that all pairs share; None with too few pairs or lengths."""
    pairs, lengths = residuals.shape
    if pairs < 2 or lengths < 3:
        return None
    bend_freedom = lengths - 2
    noise_freedom = (pairs - 1) * bend_freedom
    mean = residuals.mean(axis=0)
    bend = pairs * float(weights @ mean**2) / bend_freedom
    squares = weights * (residuals - mean) ** 2
    noise = float(np.sum(squares)) / noise_freedom
    if noise == 0:
        return 1.0 if bend == 0 else 0.0
    return float(scipy.special.fdtrc(bend_freedom, noise_freedom, bend / noise))


def _is_bent(bend_p: float | None) -> bool:
    return bend_p is not None and bend_p < BENT


def _whole_cells(filled: Bools) -> tuple[Bools, Bools]:
    """Return the pairs and the lengths to fit, which have no empty cell among them."""
    lengths = np.asarray(filled.mean(axis=0) > 0.5)
    pairs = np.asarray(filled[:, lengths].all(axis=1))
    if not pairs.any():
        pairs = np.ones_like(pairs)
        lengths = np.asarray(filled.all(axis=0))
    return pairs, lengths


def fit(grid: Grid, scale: Floats) -> FittedLine | None:
    """Return the line through *grid*, or None with fewer than three lengths.

    *scale* is the noise at each length. Lengths that half of the pairs or more lack are left out,
    then pairs with an empty cell; where no pair is left, lengths with an empty cell instead. A fit
    that bends gets the error of its bend as well.
    """
    rows, columns = _whole_cells(np.isfinite(grid.values))
    values = grid.values[np.ix_(rows, columns)]
    pairs, lengths = values.shape
    if lengths < MIN_LENGTHS or pairs < 1:
        return None
    unit = float(grid.lengths[columns].max())
    x = grid.lengths[columns] / unit
    weights = 1 / scale[columns] ** 2
    by_pair, inverse = _solve(x, values, weights)
    residuals = values - by_pair @ np.stack([np.ones_like(x), x])
    bend_p = _lack_of_fit(residuals, weights)
    of_bend = inverse * float(weights @ residuals.mean(axis=0) ** 2) / (lengths - 2)
    covariance = of_bend
    df = lengths - 2
    if pairs >= MIN_PAIRS:
        covariance = np.cov(by_pair.T) / pairs
        df = pairs - 1
        if _is_bent(bend_p):
            covariance = covariance + of_bend
            df = min(df, lengths - 2)
    return FittedLine.of(
        by_pair.mean(axis=0),
        covariance,
        unit=unit,
        df=df,
        pairs=pairs,
        lengths=lengths,
        lack_of_fit_p=bend_p,
    )


def itl_line(
    arm: str,
    *,
    users: int,
    pair: Ints,
    batch_tokens: Floats,
    itl_ms: Floats,
    kv_bytes_per_token: float | None = None,
) -> ItlLine | None:
    """Return the line of one arm at one batch size, or None with fewer than three lengths."""
    if not itl_ms.size:
        return None
    grid = on_grid(pair, batch_tokens, itl_ms)
    medians = grid.medians()
    fitted = fit(grid, medians)
    if fitted is None:
        return None
    slope = _estimate(fitted, fitted.slope, fitted.var_slope, "ms/token")
    robust = scipy.stats.theilslopes(medians, grid.lengths)
    theil_sen = Estimate(
        value=float(robust.slope),
        low=float(robust.low_slope),
        high=float(robust.high_slope),
        n=fitted.lengths,
        unit="ms/token",
        method="Theil-Sen over medians by length",
    )
    bandwidth = None
    if kv_bytes_per_token is not None and slope.value > 0:
        tb_per_s = kv_bytes_per_token * 1e3 / 1e12
        by_bytes = replace(slope, method="KV bytes per token / slope")
        bandwidth = by_bytes.inverse(tb_per_s, unit="TB/s")
    gap = abs(slope.value - theil_sen.value)
    slopes_agree = gap <= DISAGREE * abs(theil_sen.value)
    return ItlLine(
        arm=arm,
        users=users,
        slope_ms_per_token=slope,
        intercept_ms=_estimate(fitted, fitted.intercept, fitted.var_intercept, "ms"),
        theil_sen_slope=theil_sen,
        lack_of_fit_p=fitted.lack_of_fit_p,
        straight=slopes_agree and not _is_bent(fitted.lack_of_fit_p),
        bandwidth_tb_s=bandwidth,
        range_tokens=(float(grid.lengths.min()), float(grid.lengths.max())),
    )


def _estimate(fitted: FittedLine, value: float, variance: float, unit: str) -> Estimate:
    """Return a coefficient of a line with its interval."""
    reach = fitted.reach() * variance**0.5
    return Estimate(
        value=value,
        low=value - reach,
        high=value + reach,
        n=fitted.pairs,
        unit=unit,
        method=f"weighted least squares over {fitted.lengths} lengths, {fitted.pairs} block pairs",
    )
