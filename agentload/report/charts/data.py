"""Write a chart's values as a table of comma-separated values or a Vega-Lite specification."""

import csv as comma
import io
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias, assert_never

from jinja2 import Environment

from agentload.report.charts.spec import Chart, HeatMap, Lanes, Plot, Series
from agentload.report.templating import environment

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
    template = _environment().get_template("vega.json.j2")
    written = template.render(chart=chart, kind=type(chart).__name__)
    specification: dict[str, Any] = json.loads(written)
    return specification


@cache
def _environment() -> Environment:
    return environment(autoescape=False)  # JSON: every word passes `tojson`


def whole(chart: Chart) -> str:
    """Return a Vega-Lite specification with its data inside."""
    specification = vega_lite(chart)
    specification["data"]["values"] = csv(chart)
    return json.dumps(specification, ensure_ascii=False)
