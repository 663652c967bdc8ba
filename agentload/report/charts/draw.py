"""Draw charts as SVG text: the grid, what stands across it, the
arms' values with a tip each; inside a page, or as a file of its own.
"""

import math
from collections.abc import Callable
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final, assert_never

from markupsafe import Markup

from agentload.report.charts.scale import Scale, fitted
from agentload.report.charts.spec import (
    Axis,
    Band,
    Cell,
    Chart,
    HeatMap,
    Lanes,
    Look,
    Plot,
    Rule,
    Series,
    Span,
    Trace,
    legend,
)
from agentload.report.format import axis_value, tick
from agentload.visible import visible

Attribute = str | float | int | None


def element(name: str, *children: str, **attributes: Attribute) -> str:
    """Write one element; `class_` stands for class, `_`
    in a name for `-`, None leaves an attribute out.
    """
    written = "".join(
        f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def escaped(words: str) -> str:
    """Return words as the content of an element, each character to be seen."""
    return escape(visible(words), quote=False)


def text(words: str, **attributes: Attribute) -> str:
    """Write a text element."""
    return element("text", escaped(words), **attributes)


def coordinate(value: float) -> str:
    """Write a pixel to a tenth, the shortest way."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def path(points: list[tuple[float, float]]) -> str:
    """Write the `d` of a line through the points."""
    return "M" + "L".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)


def _name(key: str) -> str:
    # SVG's own camel-case names (viewBox) pass unchanged.
    return key.rstrip("_").replace("_", "-")


def _value(value: Attribute) -> str:
    return coordinate(value) if isinstance(value, float) else escape(visible(str(value)))


WIDTH = 480
_HEIGHT = 300
# Room for tick labels and for the two axis titles.
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 46
CHAR = 6.2
"""Mean width of a character of the 12-pixel label font."""


def _plot(plot: Plot) -> str:
    """Draw everything inside the frame."""
    x, y = scales(plot)
    return "".join((
        _rows(y, x),
        _axis(x, y.start),
        _names(x.axis.label, y.axis.label, x.start, _HEIGHT),
        *(_band(band, x, y) for band in plot.bands),
        *(_rule(rule, x, y) for rule in plot.rules),
        *(_series(series, x, y) for series in plot.series),
    ))  # fmt: skip


def scales(plot: Plot) -> tuple[Scale, Scale]:
    """Lay both axes over the frame, wide enough for
    all values, rules and the bands' closed ends.
    """
    xs = [value for series in plot.series for value in series.xs]
    ys = [value for series in plot.series for value in (*series.ys, *series.lows, *series.highs)]
    for axis, values in (("x", xs), ("y", ys)):
        values += [rule.at for rule in plot.rules if rule.axis == axis]
        values += [
            end
            for band in plot.bands
            if band.axis == axis
            for end in (band.low, band.high)
            if end is not None
        ]
    return (
        fitted(plot.x, xs, start=LEFT, end=WIDTH - RIGHT, ends="values"),
        fitted(plot.y, ys, start=_HEIGHT - BOTTOM, end=TOP, ends="ticks"),
    )


def _rows(y: Scale, x: Scale) -> str:
    return "".join(
        element("line", class_="grid", x1=x.start, x2=x.end, y1=y.at(value), y2=y.at(value))
        + text(
            tick(y.axis.quantity, value, y.step),
            class_="tick",
            x=x.start - 6,
            y=y.at(value) + 4,
            text_anchor="end",
        )
        for value in y.ticks()
    )


def _axis(x: Scale, bottom: float) -> str:
    ticks = "".join(
        element("line", class_="axis", x1=x.at(value), x2=x.at(value), y1=bottom, y2=bottom + 4)
        + text(
            tick(x.axis.quantity, value, x.step),
            class_="tick",
            x=x.at(value),
            y=bottom + 17,
            text_anchor=_anchor(x.at(value)),
        )
        for value in x.ticks()
    )
    return element("line", class_="axis", x1=x.start, x2=x.end, y1=bottom, y2=bottom) + ticks


def _names(x: str, y: str, left: float, height: float) -> str:
    """Write what the axes count; the y title lies flat above its axis, where it can be read."""
    across = text(
        x, class_="label", x=(left + WIDTH - RIGHT) / 2, y=height - 8.0, text_anchor="middle"
    )
    return (text(y, class_="label", x=4.0, y=14.0) if y else "") + across


def _anchor(at: float) -> str:
    return "end" if at > WIDTH - RIGHT - 14 else "middle"


def _band(band: Band, x: Scale, y: Scale) -> str:
    scale = x if band.axis == "x" else y
    ends = sorted(
        (
            scale.start if band.low is None else scale.at(band.low),
            scale.end if band.high is None else scale.at(band.high),
        )
    )
    across = {"x": ends[0], "width": ends[1] - ends[0], "y": y.end, "height": y.start - y.end}
    if band.axis == "y":
        across = {"x": x.start, "width": x.end - x.start, "y": ends[0], "height": ends[1] - ends[0]}
    box = element("rect", class_=_class("band", band.slot), **across)
    at = (ends[0] + ends[1]) / 2 if band.axis == "x" else x.end
    return box + _note(band.label, at, y.end + 13 if band.axis == "x" else ends[0] - 4, x)


def _rule(rule: Rule, x: Scale, y: Scale) -> str:
    if rule.axis == "x":
        at = x.at(rule.at)
        return element("line", class_="rule", x1=at, x2=at, y1=y.start, y2=y.end) + _note(
            rule.label, at, y.end + 13, x
        )
    at = y.at(rule.at)
    return element("line", class_="rule", x1=x.start, x2=x.end, y1=at, y2=at) + _note(
        rule.label, x.end, at - 4, x
    )


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
    marks = "".join(
        marker(at, series.slot, shape, tip)
        for at, tip in zip(pixels, tips, strict=True)
        if math.isfinite(at[1])
    )
    return element(
        "g",
        _spread(series, x, y),
        drawn,
        marks,
        class_=_class("series", series.slot),
        data_arm=series.slot,
    )


def _spread(series: Series, x: Scale, y: Scale) -> str:
    """Draw the values' intervals: a band along a line, a bar at each point."""
    ends = [
        (x.at(at), y.at(low), y.at(high))
        for at, low, high in zip(series.xs, series.lows, series.highs, strict=False)
    ]
    if series.mark == "line" and ends:
        return element(
            "path",
            class_="band",
            d=path(
                [(at, low) for at, low, _ in ends] + [(at, high) for at, _, high in reversed(ends)]
            ),
        )
    return "".join(
        element("line", class_="bar", x1=at, x2=at, y1=low, y2=high) for at, low, high in ends
    )


def _line(pixels: list[tuple[float, float]]) -> str:
    """Draw a line through the points, broken where one is missing."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at in pixels:
        if math.isfinite(at[1]):
            pieces[-1].append(at)
        elif pieces[-1]:
            pieces.append([])
    d = "".join(path(piece) for piece in pieces if len(piece) > 1)
    return element("path", class_="line", d=d) if d else ""


def _stairs(pixels: list[tuple[float, float]]) -> list[tuple[float, float]]:
    out = pixels[:1]
    for (_, before), (across, up) in pairwise(pixels):
        out += [(across, before), (across, up)]
    return out


def marker(at: tuple[float, float], slot: int | None, class_: str, tip: str | None = None) -> str:
    """Draw the arm's own shape, so that arms differ without colour too."""
    x, y = at
    shapes = (
        "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0",
        "M-3,-3h6v6h-6z",
        "M0,-3.9L3.7,2.9h-7.4z",
        "M0,-4.2L4.2,0L0,4.2L-4.2,0z",
    )
    shape = shapes[(slot or 0) % len(shapes)]
    title = f"<title>{escaped(tip)}</title>" if tip else ""
    return (
        f'<path class="{class_}" transform="translate({coordinate(x)},{coordinate(y)})" '
        f'd="{shape}">{title}</path>'
    )


def _class(name: str, slot: int | None) -> str:
    return name if slot is None else f"{name} arm-{slot}"


MAP_LEFT = 64
GAP = 2.0
PALE = 0.08
"""Opacity of a share of 0: still a field, not a hole."""
INVERT = 0.6
"""From this share on the field is dark enough for light ink."""


def _heat_map(chart: HeatMap) -> str:
    """Draw everything inside the frame; a field without items stays empty."""
    wide = (WIDTH - MAP_LEFT - RIGHT) / max(1, len(chart.columns))
    high = (_HEIGHT - TOP - BOTTOM) / max(1, len(chart.rows))
    columns = "".join(
        text(
            label,
            class_="tick",
            x=MAP_LEFT + (index + 0.5) * wide,
            y=_HEIGHT - BOTTOM + 17.0,
            text_anchor="middle",
        )
        for index, label in enumerate(chart.columns)
    )
    rows = "".join(
        text(
            label,
            class_="tick",
            x=MAP_LEFT - 6.0,
            y=TOP + (index + 0.5) * high + 4,
            text_anchor="end",
        )
        for index, label in enumerate(chart.rows)
    )
    names = _names(chart.x_label, chart.y_label, MAP_LEFT, _HEIGHT)
    return rows + columns + names + "".join(_field(cell, wide, high) for cell in chart.cells)


def _field(cell: Cell, wide: float, high: float) -> str:
    left, top = MAP_LEFT + cell.column * wide, TOP + cell.row * high
    opacity = PALE + (1 - PALE) * min(max(cell.value, 0.0), 1.0)
    box = element(
        "rect",
        class_="heat",
        x=left + GAP / 2,
        y=top + GAP / 2,
        width=wide - GAP,
        height=high - GAP,
        rx=2,
        fill_opacity=f"{opacity:.2f}",
    )
    ink = "heat-ink light" if cell.value >= INVERT else "heat-ink"
    words = text(
        cell.text, class_=ink, x=left + wide / 2, y=top + high / 2 + 4, text_anchor="middle"
    )
    return f'<g class="field arm-{cell.slot}"><title>{escaped(cell.tip)}</title>{box}{words}</g>'


LANES_LEFT = 146
"""Room for the lanes' labels."""
_THICK: Final[dict[Look, float]] = {"interval": 0, "noise": 0.9, "mark": 0.5}
"""Heights of spans as shares of their lane; any other is three fifths high."""


def _lanes(chart: Lanes) -> str:
    """Draw everything inside the frame: bands first, then lane by lane what each arm has in it."""
    bottom = TOP + chart.height * len(chart.lanes)
    ends = [end for span in chart.spans for end in (span.low, span.high)]
    ends += [end for band in chart.bands for end in (band.low, band.high) if end is not None]
    x = fitted(chart.x, ends, start=LANES_LEFT, end=WIDTH - RIGHT, ends="values")
    frame = Scale(
        axis=Axis(label="", quantity="count"), low=0, high=1, start=bottom, end=TOP, step=1
    )
    labels = "".join(
        text(
            label.strip(),
            class_="tick" if label.startswith(" ") else "label lane",
            x=12.0 if label.startswith(" ") else 4.0,
            y=at + 4,
        )
        for index, label in enumerate(chart.lanes)
        if (at := TOP + chart.height * (index + 0.5))
    )
    spans = sorted(chart.spans, key=lambda span: span.look != "noise")
    return "".join((
        *(_band(band, x, frame) for band in chart.bands),
        *(_rule(rule, x, frame) for rule in chart.rules),
        labels,
        _axis(x, bottom),
        _names(x.axis.label, "", LANES_LEFT, bottom + BOTTOM),
        *(
            element("g", *(_span(span, x, chart.height) for span in spans if span.slot == slot), class_=_class("series", slot))
            for slot in dict.fromkeys(span.slot for span in spans)
        ),
        *(_trace(each, x, chart.height) for each in chart.traces),
    ))  # fmt: skip


def _span(span: Span, x: Scale, height: float) -> str:
    middle = TOP + height * (span.lane + span.offset)
    low, high = x.at(span.low), x.at(span.high)
    title = f"<title>{escaped(span.tip)}</title>" if span.tip else ""
    if span.look == "interval":
        line = element("line", class_="bar", x1=low, x2=high, y1=middle, y2=middle)
        return element(
            "g",
            title,
            line,
            "" if span.at is None else marker((x.at(span.at), middle), span.slot, "mark"),
            class_="interval",
        )
    thick = height * _THICK.get(span.look, 0.6)
    box = element("rect", x=low, y=middle - thick / 2, width=max(high - low, 1.0), height=thick)
    return element("g", title, box, class_=f"span {span.look}")


def _trace(trace: Trace, x: Scale, height: float) -> str:
    bottom = TOP + height * (trace.lane + 1)
    pixels = [
        (x.at(at), bottom - 1 - (height - 2) * value)
        for at, value in zip(trace.xs, trace.ys, strict=True)
    ]
    return element("g", _line(_stairs(pixels)), class_=_class("series", trace.slot))


TITLE, ROW = 26, 18
"""Heights of a picture's own title, and of each row of its legend."""
TITLE_CHARS = 60
PAD = 18


def inline(chart: Chart) -> str:
    """Draw for a page that brings title, legend and style itself;
    one stop of the tab key, its marks are walked with the arrows.
    """
    return element(
        "svg",
        *_described(chart, f"{chart.name}-"),
        body(chart),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {height(chart):g}",
        role="img",
        aria_labelledby=f"{chart.name}-title {chart.name}-desc",
        tabindex=0,
    )


def picture(chart: Chart) -> str:
    """Draw a file that stands alone, on its own ground in light and dark."""
    style = "".join(
        (files("agentload.report") / "templates" / name).read_text(encoding="utf-8")
        for name in ("palette.css", "chart.css")
    )
    names, rows = _drawn_legend(chart)
    head = TITLE + ROW * rows
    high = height(chart) + head + PAD
    return (
        element(
            "svg",
            *_described(chart, ""),
            element("style", style),
            element(
                "rect", class_="ground", x=-PAD, y=-PAD / 2, width=WIDTH + 2 * PAD, height=high
            ),
            text(shortened(chart.title), class_="title", x=4.0, y=17.0),
            names,
            element("g", body(chart), transform=f"translate(0,{head})"),
            xmlns="http://www.w3.org/2000/svg",
            class_="chart",
            viewBox=f"{-PAD} {-PAD / 2:g} {WIDTH + 2 * PAD} {high:g}",
            width=WIDTH + 2 * PAD,
            height=high,
            role="img",
            aria_labelledby="title desc",
        )
        + "\n"
    )


def _described(chart: Chart, prefix: str) -> tuple[str, str]:
    return (
        element("title", escaped(chart.title), id=f"{prefix}title"),
        element("desc", escaped(chart.caption), id=f"{prefix}desc"),
    )


def shortened(title: str) -> str:
    """Return as much of a title as fits above the
    frame; the whole is in the picture's own title.
    """
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"


def height(chart: Chart) -> float:
    """Return how high a chart is drawn, in the pixels of its own frame."""
    return TOP + chart.height * len(chart.lanes) + BOTTOM if isinstance(chart, Lanes) else _HEIGHT


def body(chart: Chart) -> str:
    """Draw what is inside the frame."""
    match chart:
        case Plot():
            return _plot(chart)
        case HeatMap():
            return _heat_map(chart)
        case Lanes():
            return _lanes(chart)
        case _:
            assert_never(chart)


def _drawn_legend(chart: Chart) -> tuple[str, int]:
    """Draw the arms' names, in as many rows as they need, and return how many those are."""
    out, at, rows = "", 8.0, 0
    for label, slot in legend(chart):
        wide = 30 + len(label) * CHAR
        if rows == 0 or at + wide > WIDTH + PAD:
            at, rows = 8.0, rows + 1
        y = TITLE + ROW * rows - 6.0
        out += element("g", marker((at, y - 4), slot, "mark"), class_=f"series arm-{slot}")
        out += text(label, class_="tick", x=at + 9, y=y)
        at += wide
    return out, rows


def _drawn(chart: Chart) -> Markup:
    return Markup(inline(chart))  # noqa: S704  # the drawing escapes every word it places


def _swatch(slot: int) -> Markup:
    mark = marker((6.0, 6.0), slot, "mark")
    return Markup(  # noqa: S704
        f'<svg class="series arm-{slot}" viewBox="0 0 12 12" width="12" height="12" '
        f'aria-hidden="true">{mark}</svg>'
    )


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "drawn": _drawn,
    "legend": legend,
    "swatch": _swatch,
}
