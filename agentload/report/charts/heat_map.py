"""Draw a heat map: fields over two ordered sets of labels."""

from agentload.report.charts.frame import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, names
from agentload.report.charts.spec import HeatMap, Square
from agentload.report.charts.svg import element, text, title

LEFT = 64
GAP = 2.0
PALE = 0.08
"""Opacity of a share of 0: still a field, not a hole."""


def heat_map(chart: HeatMap) -> str:
    """Draw everything inside the frame; a field without items stays empty."""
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(chart.columns))
    high = (HEIGHT - TOP - BOTTOM) / max(1, len(chart.rows))
    out = ""
    for index, label in enumerate(chart.rows):
        out += text(label, "tick", LEFT - 6.0, TOP + (index + 0.5) * high + 4, "end")
    for index, label in enumerate(chart.columns):
        at = LEFT + (index + 0.5) * wide
        out += text(label, "tick", at, HEIGHT - BOTTOM + 17.0, "middle")
    out += names(chart.x_label, chart.y_label, LEFT, HEIGHT)
    return out + "".join(_field(cell, wide, high) for cell in chart.cells)


def _field(cell: Square, wide: float, high: float) -> str:
    left = LEFT + cell.column * wide
    top = TOP + cell.row * high
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
    words = text(cell.text, "heat-ink", left + wide / 2, top + high / 2 + 4, "middle")
    return element("g", title(cell.tip), box, words, class_=f"field arm-{cell.slot}")
