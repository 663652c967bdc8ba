"""Fit token latency against KV tokens of the batch two ways, and say when a line is the wrong picture."""

from __future__ import annotations

from scipy import stats

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics import line
from advisor.statistics.grid import on_grid
from advisor.verdict import ItlLine

DISAGREE = 0.10  # least squares and Theil-Sen further apart than this: outliers or a bend decide the slope


def itl_line(
    arm: str, *, users: int, pair: Ints, batch_tokens: Floats, itl_ms: Floats, kv_bytes_per_token: float | None = None
) -> ItlLine | None:
    """Return the line of one arm at one batch size, or None with fewer than three lengths."""
    if not itl_ms.size:
        return None
    grid = on_grid(pair, batch_tokens, itl_ms)
    medians = grid.medians()
    fitted = line.fit(grid, medians)
    if fitted is None:
        return None
    reach = fitted.reach()
    method = f"weighted least squares over {fitted.lengths} lengths, {fitted.pairs} block pairs"
    slope = _estimate(fitted.slope, reach * fitted.var_slope**0.5, fitted.pairs, "ms/token", method)
    robust = stats.theilslopes(medians, grid.lengths)
    theil_sen = Estimate(
        value=float(robust.slope),
        low=float(robust.low_slope),
        high=float(robust.high_slope),
        n=fitted.lengths,
        unit="ms/token",
        method="Theil-Sen over medians by length",
    )
    agree = abs(slope.value - theil_sen.value) <= DISAGREE * abs(theil_sen.value)
    return ItlLine(
        arm=arm,
        users=users,
        slope_ms_per_token=slope,
        intercept_ms=_estimate(fitted.intercept, reach * fitted.var_intercept**0.5, fitted.pairs, "ms", method),
        theil_sen_slope=theil_sen,
        lack_of_fit_p=fitted.lack_of_fit_p,
        straight=agree and (fitted.lack_of_fit_p is None or fitted.lack_of_fit_p >= line.BENT),
        bandwidth_tb_s=_bandwidth(slope, kv_bytes_per_token),
        range_tokens=(float(grid.lengths.min()), float(grid.lengths.max())),
    )


def _estimate(value: float, reach: float, n: int, unit: str, method: str) -> Estimate:
    return Estimate(value=value, low=value - reach, high=value + reach, n=n, unit=unit, method=method)


def _bandwidth(slope: Estimate, kv_bytes_per_token: float | None) -> Estimate | None:
    """Return bytes per token over slope in TB/s: what the attention kernel reads per second."""
    if kv_bytes_per_token is None or slope.value <= 0 or slope.low is None or slope.high is None:
        return None
    per_ms = kv_bytes_per_token * 1e3 / 1e12
    return Estimate(
        value=per_ms / slope.value,
        low=per_ms / slope.high,
        high=per_ms / slope.low if slope.low > 0 else None,
        n=slope.n,
        unit="TB/s",
        method="KV bytes per token / slope",
    )
