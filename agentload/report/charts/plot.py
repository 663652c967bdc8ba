"""Draw values over two axes: points, lines and steps, each with its interval and a tip."""

import math
from collections.abc import Sequence
from itertools import groupby, pairwise

from agentload.report.charts.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    behind,
    foot,
    names,
    rows,
)
from agentload.report.charts.scale import Scale, fit
from agentload.report.charts.spec import Plot, Series
from agentload.report.charts.svg import Point, element, marker, of_arm, path, upright
from agentload.report.format import axis_value


def plot(chart: Plot) -> str:
    """Draw everything inside the frame."""
    x, y = scales(chart)
    out = rows(y, x)
    out += foot(x, y.start)
    out += names(x.axis.label, y.axis.label, x.start, HEIGHT)
    out += behind(chart, x, y)
    for series in chart.series:
        out += _series(series, x, y)
    return out


def scales(chart: Plot) -> tuple[Scale, Scale]:
    """Lay both axes over the frame, wide enough for all values, rules and closed band ends."""
    values: dict[str, list[float]] = {"x": [], "y": []}
    for series in chart.series:
        values["x"] += series.xs
        values["y"] += (*series.ys, *series.lows, *series.highs)
    for ruled in chart.rules:
        values[ruled.axis].append(ruled.at)
    for shaded in chart.bands:
        values[shaded.axis] += shaded.ends
    return (
        fit(chart.x, values["x"], start=LEFT, end=WIDTH - RIGHT, ends="values"),
        fit(chart.y, values["y"], start=HEIGHT - BOTTOM, end=TOP, ends="ticks"),
    )


def _series(series: Series, x: Scale, y: Scale) -> str:
    pixels = _pixels(series, series.ys, x, y)
    drawn = ""
    if series.mark != "points":
        drawn = line(stairs(pixels) if series.mark == "steps" else pixels)
    shape = "mark" if series.mark in ("points", "path") else "hit"
    marks = ""
    for at, tip in zip(pixels, series.tips or _tips(series, x, y), strict=True):
        if math.isfinite(at[1]):
            marks += marker(at, series.slot, shape, tip)
    class_ = of_arm("series", series.slot)
    spread = _spread(series, x, y)
    return element("g", spread, drawn, marks, class_=class_, data_arm=series.slot)


def _tips(series: Series, x: Scale, y: Scale) -> tuple[str, ...]:
    tips = []
    for across, up in zip(series.xs, series.ys, strict=True):
        at = axis_value(x.axis.quantity, across)
        value = axis_value(y.axis.quantity, up)
        tips.append(f"{series.label}: {at}, {value}")
    return tuple(tips)


def _pixels(series: Series, heights: Sequence[float], x: Scale, y: Scale) -> list[Point]:
    """Return where a series has these heights."""
    return [(x.at(across), y.at(up)) for across, up in zip(series.xs, heights, strict=True)]


def _spread(series: Series, x: Scale, y: Scale) -> str:
    """Draw the values' intervals: a band along a line, a bar at each point."""
    if not series.lows:
        return ""
    lows = _pixels(series, series.lows, x, y)
    highs = _pixels(series, series.highs, x, y)
    if series.mark == "line":
        return element("path", class_="band", d=path([*lows, *reversed(highs)]))
    ends = zip(lows, highs, strict=True)
    return "".join(upright("bar", at, low, high) for (at, low), (_, high) in ends)


def line(pixels: Sequence[Point]) -> str:
    """Draw a line through the points, broken where one is missing."""
    pieces = groupby(pixels, key=lambda at: math.isfinite(at[1]))
    known = [list(piece) for is_known, piece in pieces if is_known]
    d = "".join(path(piece) for piece in known if len(piece) > 1)
    return element("path", class_="line", d=d) if d else ""


def stairs(pixels: Sequence[Point]) -> list[Point]:
    """Return the corners of steps that keep each value until the next one."""
    out = list(pixels[:1])
    for (_, before), (across, up) in pairwise(pixels):
        out += [(across, before), (across, up)]
    return out
