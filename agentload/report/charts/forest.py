"""Draw a forest plot into the rows of a table: the axis at its head, an interval in each row.

The figures stand in the same rows, so the pictures are for the eye alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

from markupsafe import Markup

from agentload.model.record import Record
from agentload.report.charts.frame import behind
from agentload.report.charts.lanes import span_ends, spans, upright_frame
from agentload.report.charts.scale import Scale, fit
from agentload.report.charts.spec import Lanes
from agentload.report.charts.svg import element, text
from agentload.report.format import tick

WIDTH: Final = 440
PAD: Final = 10.0
HEAD: Final = 32
ROW: Final = 22.0
"""Least height of a row's picture."""
APART: Final = 34.0
"""Pixels between two named values of the axis at least."""


class ForestRows(Record):
    """The pictures of a table: its axis, and those of the rows that have one."""

    head: Markup
    rows: Mapping[str, Markup]
    """By the name of the row."""


def first_group(chart: Lanes) -> Lanes:
    """Return a chart with the lanes under its first heading alone, without the heading."""
    lanes = [label.strip() for label in takewhile(_is_below, chart.lanes[1:])]
    own = [span for span in chart.spans if 1 <= span.lane <= len(lanes)]
    spans = (replace(span, lane=span.lane - 1) for span in own)
    return replace(chart, lanes=tuple(lanes), spans=tuple(spans))


def _is_below(label: str) -> bool:
    """Tell whether a lane is below a heading."""
    return label.startswith(" ")


def forest_rows(chart: Lanes, names: Sequence[str | None]) -> ForestRows:
    """Draw each lane into the row of its name; a lane without a name is left out."""
    x = _axis(chart)
    drawn = {name: _row(chart, lane, x) for lane, name in enumerate(names) if name is not None}
    return ForestRows(head=_head(x), rows=drawn)


def _axis(chart: Lanes) -> Scale:
    """Lay the axis over what is shown, and no further than the chart's own."""
    low = -math.inf if chart.x.low is None else chart.x.low
    high = math.inf if chart.x.high is None else chart.x.high
    ends = [*span_ends(chart), *(each.at for each in chart.rules)]
    inside = [min(max(end, low), high) for end in ends]
    axis = replace(chart.x, low=None, high=None)
    return fit(axis, inside, start=PAD, end=WIDTH - PAD, ends="values")


def _head(x: Scale) -> Markup:
    """Draw the directions, and below them the named values."""
    zero = x.at(0.0)
    out = ""
    if zero - PAD > 60:
        out += text("← faster", "tick", zero - 8, 11.0, "end")
    if WIDTH - PAD - zero > 60:
        out += text("slower →", "tick", zero + 8, 11.0, "start")
    for value in _named_values(x):
        words = f"{tick(x.axis.quantity, value, x.step)}%" if value else "0"
        at = min(max(x.at(value), PAD + 10), WIDTH - PAD - 14)
        out += text(words, "tick", at, 27.0, "middle")
    return _picture(out, HEAD)


def _named_values(x: Scale) -> Iterator[float]:
    """Yield the round values that have room for their name, zero among them."""
    placed = [x.at(0.0)]
    yield 0.0
    for value in sorted(x.ticks(), key=abs):
        at = x.at(value)
        if all(abs(at - other) >= APART for other in placed):
            placed.append(at)
            yield value


def _row(chart: Lanes, lane: int, x: Scale) -> Markup:
    height = max(ROW, chart.height)
    own = [replace(span, lane=0) for span in chart.spans if span.lane == lane]
    unnamed = replace(
        chart,
        bands=tuple(replace(each, label="") for each in chart.bands),
        rules=tuple(replace(each, label="") for each in chart.rules),
    )
    drawn = spans(own, x, top=0.0, height=height)
    return _picture(behind(unnamed, x, upright_frame(height, 0.0)) + drawn, height)


def _picture(inside: str, height: float) -> Markup:
    drawn = element(
        "svg", inside, class_="chart forest", viewBox=f"0 0 {WIDTH} {height:g}", aria_hidden="true"
    )
    return Markup(drawn)  # noqa: S704  # the drawing escapes every word it places
