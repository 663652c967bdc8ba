"""Lay values over pixels: where an axis begins and ends, and which round values it names."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from advisor import words
from agentload.model.record import Record
from agentload.report.charts.spec import ChartAxis, Plot

EDGE = 0.03
"""Share of the range that stays free beyond the first and the last value, so that no mark is
cut.
"""


class Scale(Record):
    """A stretch of values laid over a stretch of pixels."""

    axis: ChartAxis
    low: float
    high: float
    start: float
    end: float
    step: float
    """Distance between linear ticks; on a log scale the smallest tick."""

    def at(self, value: float) -> float:
        """Return the pixel of a value; beyond the scale's ends, the end."""
        value = min(max(value, self.low), self.high)
        if self.axis.scale == "log":
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> tuple[float, ...]:
        """Return round values inside the scale, at most eight."""
        if self.axis.scale == "log":
            doubled = _doublings(self.low, self.high) if self.axis.quantity == "tokens" else ()
            if len(doubled) > 1:
                return doubled
            return _log_ticks(self.low, self.high)
        first = math.ceil(self.low / self.step - 1e-9)
        last = math.floor(self.high / self.step + 1e-9)
        return tuple(index * self.step for index in range(first, last + 1))


SMALLEST = 1e-12  # share of the values: a span below this is rounding, not spread
SMALLEST_SPAN = 1e-100


def fit(
    axis: ChartAxis,
    values: Iterable[float],
    *,
    start: float,
    end: float,
    ends: Literal["ticks", "values"],
) -> Scale:
    """Lay an axis over pixels so that it covers all values.

    Where it is left open it ends on a tick, or just beyond the values.
    """
    if axis.scale == "log":
        low, high = _log_reach(axis, [value for value in values if 0 < value < math.inf])
        return Scale(axis=axis, low=low, high=high, start=start, end=end, step=low)
    low, high = _reach(axis, [value for value in values if math.isfinite(value)])
    unit = _unit(axis, high)
    step = unit * round_step((high - low) / 4 / unit)
    if axis.whole:
        step = max(step, 1.0)
    edge = EDGE * (high - low)
    if axis.low is None:
        low = math.floor(low / step + 1e-9) * step if ends == "ticks" else low - edge
    if axis.high is None:
        high = math.ceil(high / step - 1e-9) * step if ends == "ticks" else high + edge
    return Scale(axis=axis, low=low, high=high, start=start, end=end, step=step)


def _unit(axis: ChartAxis, high: float) -> int:
    """Return what round values of an axis are multiples of: k or M where it names them so."""
    units = (words.K**2, words.K) if axis.quantity == "tokens" else ()
    return next((unit for unit in units if high >= unit), 1)


def _log_reach(axis: ChartAxis, known: Sequence[float]) -> tuple[float, float]:
    """Return from where to where positive values go; zeroes alone have no logarithm."""
    low, high = _ends(axis, known, lowest=1.0)
    if high <= low:
        return (low / 2, low * 2)
    return (low, high)


def _reach(axis: ChartAxis, known: Sequence[float]) -> tuple[float, float]:
    """Return from where to where values go, apart enough to be told apart."""
    low, high = _ends(axis, known, lowest=0.0)
    if high - low > SMALLEST * max(abs(low), abs(high)) + SMALLEST_SPAN:
        return low, high
    half = abs(low) / 2 if abs(low) > SMALLEST_SPAN else 0.5
    if axis.low is None:
        return (low - half, low + half)
    return (low, low + 2 * half)


def _ends(axis: ChartAxis, known: Sequence[float], *, lowest: float) -> tuple[float, float]:
    """Return the ends of an axis: its own, else those of the values, else *lowest* and 1."""
    low = min(known, default=lowest) if axis.low is None else axis.low
    high = max(known, default=1.0) if axis.high is None else axis.high
    return low, high


def equal_heights(plots: Iterable[Plot]) -> tuple[Plot, ...]:
    """Return plots of one quantity with one y axis, which reaches over what any of them shows."""
    known = tuple(plots)
    shown = [value for plot in known for value in _heights(plot)]
    if not shown:
        return known
    axis = fit(known[0].y, shown, start=0.0, end=1.0, ends="ticks")
    even = []
    for plot in known:
        y = replace(plot.y, low=axis.low, high=axis.high)
        even.append(replace(plot, y=y))
    return tuple(even)


def _heights(plot: Plot) -> Iterator[float]:
    """Yield the values of a plot, and the ends of its intervals and bands."""
    for each in plot.series:
        yield from (*each.ys, *each.lows, *each.highs)
    for band in plot.bands:
        if band.axis == "y":
            yield from band.ends


def round_step(rough: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below *rough*."""
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (factor * power for factor in (1, 2, 5, 10))
    return next(step for step in steps if step >= rough * (1 - 1e-9))


def _doublings(low: float, high: float) -> tuple[float, ...]:
    """Return powers of two, as lengths of contexts are named: 512, 2k, 8k."""
    first = math.ceil(math.log2(low) - 1e-9)
    last = math.floor(math.log2(high) + 1e-9)
    powers = tuple(2.0**exponent for exponent in range(first, last + 1))
    return powers[:: math.ceil(len(powers) / 7) or 1]


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
    powers = [10.0**exponent for exponent in range(first, last + 1)]
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = (factor * power for power in powers for factor in factors)
        inside = tuple(tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9))
        if len(inside) <= 7:
            return inside
    return inside[:: math.ceil(len(inside) / 7)]
