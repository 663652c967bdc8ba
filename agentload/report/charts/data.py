"""Write a chart's values as a table of comma-separated values or a Vega-Lite specification."""

import csv as comma
import io
import json
from collections.abc import Iterable
from typing import Any, Final, assert_never

from agentload.report.charts.spec import Axis, Chart, HeatMap, Lanes, Plot

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
_MARKS: Final[dict[str, Any]] = {
    "points": {"type": "point", "filled": True},
    "line": "line",
    "steps": {"type": "line", "interpolate": "step-after"},
}


def csv(chart: Chart) -> str:
    """Return the chart's values as a table, one row for each thing that is drawn."""
    match chart:
        case Plot():
            columns = ("series", "mark", "x", "y", "low", "high")
            rows: Iterable[tuple[object, ...]] = (
                (each.label, each.mark, *values)
                for each in chart.series
                for values in zip(
                    each.xs,
                    each.ys,
                    each.lows or [None] * len(each.xs),
                    each.highs or [None] * len(each.xs),
                    strict=True,
                )
            )
        case HeatMap():
            columns = ("column", "row", "value", "text", "says", "")
            rows = (
                (chart.columns[each.column], chart.rows[each.row], each.value, each.text, each.tip)
                for each in chart.cells
            )
        case Lanes():
            columns = ("lane", "arm", "what", "low", "at", "high")
            arms = {slot: label for label, slot in chart.arms}
            names = _lane_names(chart)
            rows = (
                (
                    names[each.lane],
                    arms.get(each.slot or 0),
                    each.look,
                    each.low,
                    each.at,
                    each.high,
                )
                for each in chart.spans
            )
        case _:
            assert_never(chart)
    out = io.StringIO()
    writer = comma.writer(out, lineterminator="\n")
    writer.writerow(name for name in columns if name)
    writer.writerows(
        [f"{field:.6g}" if isinstance(field, float) else field for field in row] for row in rows
    )
    return out.getvalue()


def _lane_names(chart: Lanes) -> list[str]:
    """Return each lane's name with that of the heading above it."""
    out, heading = [], ""
    for label in chart.lanes:
        heading = heading if label.startswith(" ") else label
        out.append(f"{heading}, {label.strip()}" if label.startswith(" ") else label)
    return out


def vega_lite(chart: Chart) -> dict[str, Any]:
    """Return the chart as a Vega-Lite specification.

    Its data is the table of `csv`, to be put under `data.values`.
    """
    drawn = {
        "$schema": _SCHEMA,
        "title": chart.title,
        "description": chart.caption,
        "data": {"format": {"type": "csv"}},
    }
    match chart:
        case Plot():
            x, y = _axis("x", chart.x), _axis("y", chart.y)
            across = {"x": {**x, "type": "quantitative"}, "color": {"field": "series"}}
            used = dict.fromkeys(each.mark for each in chart.series)
            layers = [
                {
                    "transform": [{"filter": f"datum.mark == '{mark}'"}],
                    "mark": _MARKS[mark],
                    "encoding": {**across, "y": y},
                }
                for mark in used
            ]
            if any(each.lows for each in chart.series):
                spread = {
                    "mark": "rule",
                    "encoding": {**across, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                }
                layers.insert(0, {"transform": [{"filter": "datum.low != ''"}], **spread})
            return {**drawn, "layer": layers}
        case HeatMap():
            at = {
                "x": {
                    "field": "column",
                    "type": "ordinal",
                    "sort": chart.columns,
                    "title": chart.x_label,
                },
                "y": {
                    "field": "row",
                    "type": "ordinal",
                    "sort": chart.rows,
                    "title": chart.y_label,
                },
            }
            dark = {"color": {"field": "value", "type": "quantitative", "legend": None}}
            layers = [
                {"mark": "rect", "encoding": dark},
                {"mark": "text", "encoding": {"text": {"field": "text"}}},
            ]
            return {**drawn, "encoding": at, "layer": layers}
        case Lanes():
            lane: dict[str, Any] = {
                "x": _axis("low", chart.x),
                "y": {"field": "lane", "type": "nominal", "sort": None, "title": None},
                "yOffset": {"field": "arm"},
                "color": {"field": "arm"},
            }
            layers = [
                {
                    "mark": "bar",
                    "encoding": {
                        "x2": {"field": "high"},
                        "opacity": {"field": "what", "type": "nominal"},
                    },
                }
            ]
            if any(each.at is not None for each in chart.spans):
                layers.append(
                    {
                        "mark": {"type": "point", "filled": True},
                        "encoding": {"x": _axis("at", chart.x)},
                    }
                )
            return {**drawn, "encoding": lane, "layer": layers}
        case _:
            assert_never(chart)


def _axis(field: str, axis: Axis) -> dict[str, Any]:
    return {
        "field": field,
        "type": "quantitative",
        "title": axis.label,
        "scale": {"type": axis.scale, "zero": axis.low == 0.0},
    }


def whole(chart: Chart) -> str:
    """Return a Vega-Lite specification with its data inside."""
    specification = vega_lite(chart)
    specification["data"]["values"] = csv(chart)
    return json.dumps(specification, ensure_ascii=False)
