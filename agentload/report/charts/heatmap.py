"""Draw a heat map: the share is written in every field, so that colour only helps."""

from __future__ import annotations

from html import escape

from agentload.report.charts.plot import HEIGHT, WIDTH
from agentload.report.charts.spec import Cell, HeatMap
from agentload.report.charts.svg import element, text
from agentload.report.format import number

LEFT, RIGHT, TOP, BOTTOM = 64, 16, 28, 46
GAP = 2.0
PALE = 0.08
"""Opacity of a share of 0: still a field, not a hole."""
INVERT = 0.6
"""From this share on the field is dark enough for light ink."""


def body(chart: HeatMap) -> str:
    """Draw everything inside the frame; a field without items stays empty."""
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(chart.columns))
    high = (HEIGHT - TOP - BOTTOM) / max(1, len(chart.rows))
    columns = "".join(
        text(label, class_="tick", x=LEFT + (index + 0.5) * wide, y=HEIGHT - BOTTOM + 17.0, text_anchor="middle")
        for index, label in enumerate(chart.columns)
    )
    rows = "".join(
        text(label, class_="tick", x=LEFT - 6.0, y=TOP + (index + 0.5) * high + 4, text_anchor="end")
        for index, label in enumerate(chart.rows)
    )
    names = text(chart.y_label, class_="label", x=4.0, y=14.0) + text(
        chart.x_label, class_="label", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8.0, text_anchor="middle"
    )
    return rows + columns + names + "".join(_field(cell, wide, high) for cell in chart.cells)


def _field(cell: Cell, wide: float, high: float) -> str:
    left, top = LEFT + cell.column * wide, TOP + cell.row * high
    opacity = PALE + (1 - PALE) * min(max(cell.value, 0.0), 1.0)
    box = element(
        "rect", class_="heat", x=left + GAP / 2, y=top + GAP / 2, width=wide - GAP, height=high - GAP, rx=2, fill_opacity=f"{opacity:.2f}"
    )
    ink = "heat-ink light" if cell.value >= INVERT else "heat-ink"
    words = text(number(100 * cell.value), class_=ink, x=left + wide / 2, y=top + high / 2 + 4, text_anchor="middle")
    return f'<g class="field"><title>{escape(cell.tip, quote=False)}</title>{box}{words}</g>'
