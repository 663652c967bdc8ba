"""Draw a plot: grid and axes first, then bands and rules, then the arms' values, each with a tip for who points at it."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from agentload.report.charts.scale import Scale, fitted
from agentload.report.charts.spec import Band, Plot, Rule, Series
from agentload.report.charts.svg import coordinate, element, path, text
from agentload.report.format import axis_value, tick

WIDTH = 480
HEIGHT = 300
# Room for tick labels and for the two axis titles; the y title lies flat above its axis, where it can be read.
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 46
CHAR = 6.2
"""Mean width of a character of the 12-pixel label font."""


def body(plot: Plot) -> str:
    """Draw everything inside the frame."""
    x, y = scales(plot)
    return "".join((
        _grid(x, y),
        *(_band(band, x, y) for band in plot.bands),
        *(_rule(rule, x, y) for rule in plot.rules),
        *(_series(series, x, y) for series in plot.series),
    ))  # fmt: skip


def scales(plot: Plot) -> tuple[Scale, Scale]:
    """Lay both axes over the frame, wide enough for all values, rules and the bands' closed ends."""
    xs = [value for series in plot.series for value in series.xs]
    ys = [value for series in plot.series for value in (*series.ys, *series.lows, *series.highs)]
    for axis, values in (("x", xs), ("y", ys)):
        values += [rule.at for rule in plot.rules if rule.axis == axis]
        values += [end for band in plot.bands if band.axis == axis for end in (band.low, band.high) if end is not None]
    return (
        fitted(plot.x, xs, start=LEFT, end=WIDTH - RIGHT, ends="values"),
        fitted(plot.y, ys, start=HEIGHT - BOTTOM, end=TOP, ends="ticks"),
    )


def _grid(x: Scale, y: Scale) -> str:
    rows = "".join(
        element("line", class_="grid", x1=x.start, x2=x.end, y1=y.at(value), y2=y.at(value))
        + text(tick(y.axis.quantity, value, y.step), class_="tick", x=x.start - 6, y=y.at(value) + 4, text_anchor="end")
        for value in y.ticks()
    )
    columns = "".join(
        element("line", class_="axis", x1=x.at(value), x2=x.at(value), y1=y.start, y2=y.start + 4)
        + text(tick(x.axis.quantity, value, x.step), class_="tick", x=x.at(value), y=y.start + 17, text_anchor=_anchor(x.at(value)))
        for value in x.ticks()
    )
    names = text(y.axis.label, class_="label", x=4.0, y=14.0) + text(
        x.axis.label, class_="label", x=(x.start + x.end) / 2, y=HEIGHT - 8.0, text_anchor="middle"
    )
    return rows + element("line", class_="axis", x1=x.start, x2=x.end, y1=y.start, y2=y.start) + columns + names


def _anchor(at: float) -> str:
    return "end" if at > WIDTH - RIGHT - 14 else "middle"


def _band(band: Band, x: Scale, y: Scale) -> str:
    scale = x if band.axis == "x" else y
    ends = sorted((scale.start if band.low is None else scale.at(band.low), scale.end if band.high is None else scale.at(band.high)))
    across = {"x": ends[0], "width": ends[1] - ends[0], "y": y.end, "height": y.start - y.end}
    if band.axis == "y":
        across = {"x": x.start, "width": x.end - x.start, "y": ends[0], "height": ends[1] - ends[0]}
    box = element("rect", class_=_class("band", band.slot), **across)
    at = (ends[0] + ends[1]) / 2 if band.axis == "x" else x.end
    return box + _note(band.label, at, y.end + 13 if band.axis == "x" else ends[0] - 4, x)


def _rule(rule: Rule, x: Scale, y: Scale) -> str:
    if rule.axis == "x":
        at = x.at(rule.at)
        return element("line", class_="rule", x1=at, x2=at, y1=y.start, y2=y.end) + _note(rule.label, at, y.end + 13, x)
    at = y.at(rule.at)
    return element("line", class_="rule", x1=x.start, x2=x.end, y1=at, y2=at) + _note(rule.label, x.end, at - 4, x)


def _note(words: str, at: float, baseline: float, x: Scale) -> str:
    """Write words centred on a pixel, moved so far that they stay inside the frame."""
    half = len(words) * CHAR / 2
    centre = min(max(at, x.start + half + 2), x.end - half - 2)
    return text(words, class_="note", x=centre, y=baseline, text_anchor="middle") if words else ""


def _series(series: Series, x: Scale, y: Scale) -> str:
    pixels = [(x.at(across), y.at(up)) for across, up in zip(series.xs, series.ys, strict=True)]
    tips = series.tips or tuple(
        f"{series.label}: {axis_value(x.axis.quantity, across)}, {axis_value(y.axis.quantity, up)}"
        for across, up in zip(series.xs, series.ys, strict=True)
    )
    drawn = {"points": "", "line": _line(pixels), "steps": _line(_stairs(pixels))}[series.mark]
    shape = "mark" if series.mark == "points" else "hit"
    marks = "".join(marker(at, series.slot, shape, tip) for at, tip in zip(pixels, tips, strict=True))
    bars = "".join(
        element("line", class_="bar", x1=across, x2=across, y1=y.at(low), y2=y.at(high))
        for (across, _), low, high in zip(pixels, series.lows, series.highs, strict=False)
    )
    return element("g", bars, drawn, marks, class_=_class("series", series.slot), data_arm=series.slot)


def _line(pixels: list[tuple[float, float]]) -> str:
    return element("path", class_="line", d=path(pixels)) if len(pixels) > 1 else ""


def _stairs(pixels: list[tuple[float, float]]) -> list[tuple[float, float]]:
    out = pixels[:1]
    for (_, before), (across, up) in pairwise(pixels):
        out += [(across, before), (across, up)]
    return out


def marker(at: tuple[float, float], slot: int | None, class_: str, tip: str | None = None) -> str:
    """Draw the arm's own shape, so that arms differ without colour too."""
    x, y = at
    shapes = ("M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0", "M-3,-3h6v6h-6z", "M0,-3.9L3.7,2.9h-7.4z", "M0,-4.2L4.2,0L0,4.2L-4.2,0z")
    shape = shapes[(slot or 0) % len(shapes)]
    title = f"<title>{escape(tip, quote=False)}</title>" if tip else ""
    return f'<path class="{class_}" transform="translate({coordinate(x)},{coordinate(y)})" d="{shape}">{title}</path>'


def _class(name: str, slot: int | None) -> str:
    return name if slot is None else f"{name} arm-{slot}"
