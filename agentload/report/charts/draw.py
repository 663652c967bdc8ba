"""Draw charts as SVG: inside a page, or as a file of its own."""

from collections.abc import Callable
from typing import Any, Final, assert_never

from markupsafe import Markup

from agentload.report import templating
from agentload.report.charts.frame import BOTTOM, CHAR, HEIGHT, TOP, WIDTH
from agentload.report.charts.heat_map import heat_map
from agentload.report.charts.lanes import lanes
from agentload.report.charts.plot import plot
from agentload.report.charts.spec import Chart, HeatMap, Lanes, Plot, legend
from agentload.report.charts.svg import content, element, marker, text

TITLE, ROW = 26, 18
"""Heights of a picture's own title, and of each row of its legend."""
TITLE_CHARS = 60
PAD = 18


def inline(chart: Chart) -> str:
    """Draw for a page that brings title, legend and style itself.

    The drawing is one stop of the tab key; arrow keys walk its marks.
    """
    return element(
        "svg",
        *_title_and_description(chart, f"{chart.name}-"),
        body(chart),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {height(chart):g}",
        role="img",
        aria_labelledby=f"{chart.name}-title {chart.name}-desc",
        tabindex=0,
    )


def picture(chart: Chart) -> str:
    """Draw a file that stands alone, on its own ground in light and dark."""
    style = "".join(map(templating.text, ("palette.css", "chart.css")))
    names, rows = _drawn_legend(chart)
    head = TITLE + ROW * rows
    high = height(chart) + head + PAD
    return (
        element(
            "svg",
            *_title_and_description(chart, ""),
            element("style", style),
            element(
                "rect", class_="ground", x=-PAD, y=-PAD / 2, width=WIDTH + 2 * PAD, height=high
            ),
            text(shorten(chart.title), "title", 4.0, 17.0),
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


def _title_and_description(chart: Chart, prefix: str) -> tuple[str, str]:
    """Draw what a reader without eyes hears of a chart."""
    return (
        element("title", content(chart.title), id=f"{prefix}title"),
        element("desc", content(chart.caption), id=f"{prefix}desc"),
    )


def shorten(title: str) -> str:
    """Return as much of a title as fits above the frame.

    The whole is in the picture's own title.
    """
    if len(title) <= TITLE_CHARS:
        return title
    return f"{title[: TITLE_CHARS - 1]}…"


def height(chart: Chart) -> float:
    """Return how high a chart is drawn, in the pixels of its own frame."""
    if isinstance(chart, Lanes):
        return TOP + chart.height * len(chart.lanes) + BOTTOM
    return HEIGHT


def body(chart: Chart) -> str:
    """Draw what is inside the frame."""
    match chart:
        case Plot():
            return plot(chart)
        case HeatMap():
            return heat_map(chart)
        case Lanes():
            return lanes(chart)
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
        out += text(label, "tick", at + 9, y)
        at += wide
    return out, rows


def _inline_markup(chart: Chart) -> Markup:
    """Draw a chart for a template."""
    return Markup(inline(chart))  # noqa: S704  # the drawing escapes every word it places


def _swatch(slot: int) -> Markup:
    mark = marker((6.0, 6.0), slot, "mark")
    return Markup(  # noqa: S704
        f'<svg class="series arm-{slot}" viewBox="0 0 12 12" width="12" height="12" '
        f'aria-hidden="true">{mark}</svg>'
    )


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "drawn": _inline_markup,
    "legend": legend,
    "swatch": _swatch,
}
