"""Draw labelled lanes over one axis.

Differences with their intervals, blocks of a run, phases of a call.
"""

from collections.abc import Iterable
from typing import Final

from agentload.report.charts.frame import BOTTOM, RIGHT, TOP, WIDTH, behind, foot, names
from agentload.report.charts.plot import line, stairs
from agentload.report.charts.scale import Scale, fit
from agentload.report.charts.spec import ChartAxis, Lanes, LaneSpan, LaneTrace, Look
from agentload.report.charts.svg import across, element, marker, of_arm, text, title

LEFT = 146
"""Room for the lanes' labels."""
_THICK: Final[dict[Look, float]] = {"interval": 0, "noise": 0.9, "mark": 0.5}
"""Heights of spans as shares of their lane; any other is three fifths high."""


def lanes(chart: Lanes) -> str:
    """Draw everything inside the frame: bands first, then the content of each lane."""
    bottom = TOP + chart.height * len(chart.lanes)
    x = fit(chart.x, span_ends(chart), start=LEFT, end=WIDTH - RIGHT, ends="values")
    out = behind(chart, x, upright_frame(bottom, TOP))
    for index, label in enumerate(chart.lanes):
        out += _label(label, index, chart.height)
    out += foot(x, bottom)
    out += names(x.axis.label, "", LEFT, bottom + BOTTOM)
    out += spans(chart.spans, x, top=TOP, height=chart.height)
    for trace in chart.traces:
        out += _trace(trace, x, chart.height)
    return out


def upright_frame(bottom: float, top: float) -> Scale:
    """Return the scale of a frame that has no values from its bottom to its top."""
    count = ChartAxis(label="", quantity="count")
    return Scale(axis=count, low=0, high=1, start=bottom, end=top, step=1)


def span_ends(chart: Lanes) -> list[float]:
    """Return where the spans and bands of a chart begin and end."""
    ends = []
    for span in chart.spans:
        ends += [span.low, span.high]
    for each in chart.bands:
        ends += each.ends
    return ends


def _label(label: str, lane: int, height: float) -> str:
    """Write a lane's name; one that begins with a space is below a heading."""
    y = TOP + height * (lane + 0.5) + 4
    if label.startswith(" "):
        return text(label.strip(), "tick", 12.0, y)
    return text(label, "label lane", 4.0, y)


def spans(of: Iterable[LaneSpan], x: Scale, *, top: float, height: float) -> str:
    """Draw spans arm by arm, the noise behind all others; lanes of *height* begin at *top*."""
    by_slot: dict[int | None, str] = {}
    for span in sorted(of, key=lambda span: span.look != "noise"):
        middle = top + height * (span.lane + span.offset)
        by_slot[span.slot] = by_slot.get(span.slot, "") + _span(span, x, middle, height)
    groups = by_slot.items()
    return "".join(element("g", drawn, class_=of_arm("series", slot)) for slot, drawn in groups)


def _span(span: LaneSpan, x: Scale, middle: float, height: float) -> str:
    low = x.at(span.low)
    high = x.at(span.high)
    tip = title(span.tip)
    if span.look == "interval":
        mark = ""
        if span.at is not None:
            mark = marker((x.at(span.at), middle), span.slot, "mark")
        return element("g", tip, across("bar", low, high, middle), mark, class_="interval")
    thick = height * _THICK.get(span.look, 0.6)
    box = element("rect", x=low, y=middle - thick / 2, width=max(high - low, 1.0), height=thick)
    return element("g", tip, box, class_=f"span {span.look}")


def _trace(trace: LaneTrace, x: Scale, height: float) -> str:
    bottom = TOP + height * (trace.lane + 1)
    values = zip(trace.xs, trace.ys, strict=True)
    pixels = [(x.at(at), bottom - 1 - (height - 2) * value) for at, value in values]
    return element("g", line(stairs(pixels)), class_=of_arm("series", trace.slot))
