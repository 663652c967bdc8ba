"""Write a chart's values as a table of comma-separated values or a Vega-Lite specification."""

import csv as comma
import io
import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, assert_never

from agentload.report.charts.spec import Chart, ChartAxis, HeatMap, Lanes, Plot, Series

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
_MARKS: Final[dict[str, Any]] = {
    "points": {"type": "point", "filled": True},
    "line": "line",
    "steps": {"type": "line", "interpolate": "step-after"},
    "path": {"type": "line", "point": True},
}


Fields: TypeAlias = tuple[object, ...]


def csv(chart: Chart) -> str:
    """Return the chart's values as a table, one row for each thing that is drawn."""
    out = io.StringIO()
    writer = comma.writer(out, lineterminator="\n")
    writer.writerow(_columns(chart))
    for row in _rows(chart):
        fields = [f"{field:.6g}" if isinstance(field, float) else field for field in row]
        writer.writerow(fields)
    return out.getvalue()


def _columns(chart: Chart) -> Fields:
    match chart:
        case Plot():
            return ("series", "mark", "x", "y", "low", "high")
        case HeatMap():
            return ("column", "row", "value", "text", "says")
        case Lanes():
            return ("lane", "arm", "what", "low", "at", "high")
        case _:
            assert_never(chart)


def _rows(chart: Chart) -> Iterator[Fields]:
    match chart:
        case Plot():
            for series in chart.series:
                yield from _values(series)
        case HeatMap():
            for cell in chart.cells:
                column = chart.columns[cell.column]
                row = chart.rows[cell.row]
                yield column, row, cell.value, cell.text, cell.tip
        case Lanes():
            arms = {slot: label for label, slot in chart.arms}
            names = _lane_names(chart)
            for span in chart.spans:
                arm = arms.get(span.slot or 0)
                yield names[span.lane], arm, span.look, span.low, span.at, span.high
        case _:
            assert_never(chart)


def _values(series: Series) -> Iterator[Fields]:
    """Yield each value of a series with the ends of its interval."""
    none = [None] * len(series.xs)
    lows = series.lows or none
    highs = series.highs or none
    for values in zip(series.xs, series.ys, lows, highs, strict=True):
        yield series.label, series.mark, *values


def _lane_names(chart: Lanes) -> list[str]:
    """Return each lane's name with that of the heading above it."""
    out = []
    heading = ""
    for label in chart.lanes:
        if label.startswith(" "):
            out.append(f"{heading}, {label.strip()}")
        else:
            heading = label
            out.append(label)
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
            x = _axis("x", chart.x)
            y = _axis("y", chart.y)
            across = {"x": {**x, "type": "quantitative"}, "color": {"field": "series"}}
            used = dict.fromkeys(each.mark for each in chart.series)
            layers = [
                {
                    "transform": [{"filter": f"datum.mark == '{mark}'"}],
                    "mark": _MARKS[mark],
                    "encoding": {**across, "y": y, "order": None},  # as the rows stand
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
                "x": _ordinal("column", chart.columns, chart.x_label),
                "y": _ordinal("row", chart.rows, chart.y_label),
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


def _axis(field: str, axis: ChartAxis) -> dict[str, Any]:
    return {
        "field": field,
        "type": "quantitative",
        "title": axis.label,
        "scale": {"type": axis.scale, "zero": axis.low == 0.0},
    }


def _ordinal(field: str, names: tuple[str, ...], title: str) -> dict[str, Any]:
    return {"field": field, "type": "ordinal", "sort": names, "title": title}


def whole(chart: Chart) -> str:
    """Return a Vega-Lite specification with its data inside."""
    specification = vega_lite(chart)
    specification["data"]["values"] = csv(chart)
    return json.dumps(specification, ensure_ascii=False)
