"""Draw the frame of a chart: axes with ticks and names, and the bands and rules across it."""

from agentload.report.charts.scale import Scale
from agentload.report.charts.spec import Band, Lanes, Plot, RuleLine
from agentload.report.charts.svg import across, element, of_arm, text, upright
from agentload.report.format import tick

WIDTH = 480
HEIGHT = 300
# Room for tick labels and for the two axis titles.
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 46
CHAR = 6.2
"""Mean width of a character of the 12-pixel label font."""


def rows(y: Scale, x: Scale) -> str:
    """Draw the lines of the grid, each with its value."""
    out = ""
    for value in y.ticks():
        at = y.at(value)
        words = tick(y.axis.quantity, value, y.step)
        out += across("grid", x.start, x.end, at)
        out += text(words, "tick", x.start - 6, at + 4, "end")
    return out


def foot(x: Scale, bottom: float) -> str:
    """Draw the axis at the foot, with its ticks."""
    out = across("axis", x.start, x.end, bottom)
    for value in x.ticks():
        at = x.at(value)
        words = tick(x.axis.quantity, value, x.step)
        anchor = "end" if at > WIDTH - RIGHT - 14 else "middle"
        out += upright("axis", at, bottom, bottom + 4)
        out += text(words, "tick", at, bottom + 17, anchor)
    return out


def names(x: str, y: str, left: float, height: float) -> str:
    """Write the names of the axes; the y name lies flat above its axis, where it can be read."""
    middle = (left + WIDTH - RIGHT) / 2
    below = text(x, "label", middle, height - 8.0, "middle")
    if not y:
        return below
    return text(y, "label", 4.0, 14.0) + below


def behind(chart: Plot | Lanes, x: Scale, y: Scale) -> str:
    """Draw the bands and rules of a chart, which lie behind everything else."""
    out = ""
    for each in chart.bands:
        out += band(each, x, y)
    for ruled in chart.rules:
        out += rule(ruled, x, y)
    return out


def band(of: Band, x: Scale, y: Scale) -> str:
    """Shade a range across the frame."""
    scale = x if of.axis == "x" else y
    low = scale.start if of.low is None else scale.at(of.low)
    high = scale.end if of.high is None else scale.at(of.high)
    low, high = sorted((low, high))
    class_ = of_arm("band", of.slot)
    if of.axis == "x":
        place = {"x": low, "width": high - low, "y": y.end, "height": y.start - y.end}
        note = _note(of.label, (low + high) / 2, y.end + 13, x)
    else:
        place = {"x": x.start, "width": x.end - x.start, "y": low, "height": high - low}
        note = _note(of.label, x.end, low - 4, x)
    return element("rect", class_=class_, **place) + note


def rule(of: RuleLine, x: Scale, y: Scale) -> str:
    """Draw a line across the frame at one value."""
    if of.axis == "x":
        at = x.at(of.at)
        return upright("rule", at, y.start, y.end) + _note(of.label, at, y.end + 13, x)
    at = y.at(of.at)
    return across("rule", x.start, x.end, at) + _note(of.label, x.end, at - 4, x)


def _note(words: str, at: float, baseline: float, x: Scale) -> str:
    """Write words centred on a pixel, shifted as far as needed to stay inside the frame."""
    if not words:
        return ""
    half = len(words) * CHAR / 2
    centre = min(max(at, x.start + half + 2), x.end - half - 2)
    return text(words, "note", centre, baseline, "middle")
