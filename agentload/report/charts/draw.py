"""Wrap a drawn chart for its place: inside a page, or as a picture file of its own."""

from __future__ import annotations

from importlib.resources import files
from typing import assert_never

from agentload.report.charts import heatmap, plot
from agentload.report.charts.plot import HEIGHT, WIDTH, marker
from agentload.report.charts.spec import Chart, HeatMap, Plot, legend
from agentload.report.charts.svg import element, text

TITLE, ROW = 26, 18
"""Heights of a picture's own title, and of each row of its legend."""
TITLE_CHARS = 60
PAD = 18


def inline(chart: Chart) -> str:
    """Draw for a page that brings title, legend and style itself; one stop of the tab key, its marks are walked with the arrows."""
    return element(
        "svg",
        element("title", text_of(chart.title), id=f"{chart.name}-title"),
        element("desc", text_of(chart.caption), id=f"{chart.name}-desc"),
        body(chart),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{chart.name}-title {chart.name}-desc",
        tabindex=0,
    )


def picture(chart: Chart) -> str:
    """Draw a file that stands alone, on its own ground in light and dark."""
    style = "".join((files("agentload.report") / "templates" / name).read_text(encoding="utf-8") for name in ("palette.css", "chart.css"))
    names, rows = _legend(chart)
    head = TITLE + ROW * rows
    return (
        element(
            "svg",
            element("title", text_of(chart.title), id="title"),
            element("desc", text_of(chart.caption), id="desc"),
            element("style", style),
            element("rect", class_="ground", x=-PAD, y=-PAD / 2, width=WIDTH + 2 * PAD, height=HEIGHT + head + PAD),
            text(shortened(chart.title), class_="title", x=4.0, y=17.0),
            names,
            element("g", body(chart), transform=f"translate(0,{head})"),
            xmlns="http://www.w3.org/2000/svg",
            class_="chart",
            viewBox=f"{-PAD} {-PAD / 2:g} {WIDTH + 2 * PAD} {HEIGHT + head + PAD}",
            width=WIDTH + 2 * PAD,
            height=HEIGHT + head + PAD,
            role="img",
            aria_labelledby="title desc",
        )
        + "\n"
    )


def shortened(title: str) -> str:
    """Return as much of a title as fits above the frame; the whole is in the picture's own title."""
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"


def body(chart: Chart) -> str:
    """Draw what is inside the frame."""
    match chart:
        case Plot():
            return plot.body(chart)
        case HeatMap():
            return heatmap.body(chart)
        case _:
            assert_never(chart)


def text_of(words: str) -> str:
    """Escape words that stand between tags."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _legend(chart: Chart) -> tuple[str, int]:
    """Draw the arms' names, in as many rows as they need, and return how many those are."""
    out, at, rows = "", 8.0, 0
    for label, slot in legend(chart):
        wide = 30 + len(label) * plot.CHAR
        if rows == 0 or at + wide > WIDTH + PAD:
            at, rows = 8.0, rows + 1
        y = TITLE + ROW * rows - 6.0
        out += element("g", marker((at, y - 4), slot, "mark"), class_=f"series arm-{slot}")
        out += text(label, class_="tick", x=at + 9, y=y)
        at += wide
    return out, rows
