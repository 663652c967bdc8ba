"""Every chart as a table, and as a Vega-Lite specification that names only what the table has."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentload.report.charts import data
from agentload.report.charts.spec import Chart, ChartAxis, Lanes, LaneSpan
from tests.report.charts.test_draw import MAP, PLOT
from tests.report.telling import made

LANES = Lanes(
    name="differences",
    title="Change against BF16",
    caption="Left of 0 is faster.",
    x=ChartAxis(label="change, %", quantity="percent"),
    lanes=("your mix", " turn latency"),
    spans=(
        LaneSpan(lane=1, look="noise", low=-2.0, high=2.0),
        LaneSpan(lane=1, look="interval", low=-8.0, high=-4.0, at=-6.0, slot=1, tip="FP8: −6%"),
    ),
    arms=(("FP8", 1),),
)


def test_a_lane_is_named_with_the_heading_above_it_and_what_is_not_there_is_empty() -> None:
    assert data.csv(LANES) == (
        'lane,arm,what,low,at,high\n"your mix, turn latency",,noise,-2,,2\n"your mix, turn '
        'latency",FP8,interval,-8,-6,-4\n'
    )


def test_a_heat_map_is_a_row_a_field() -> None:
    assert (
        data.csv(MAP)
        == "column,row,value,text,says\n8k,0%,1,100,20 of 20\n128k,100%,0.05,5,1 of 20\n"
    )


def fields(part: Any) -> set[str]:  # noqa: ANN401  # a specification is JSON of any shape
    match part:
        case dict():
            own = {part["field"]} if isinstance(part.get("field"), str) else set()
            return own.union(*(fields(each) for each in part.values())) if part else own
        case list():
            return set().union(*(fields(each) for each in part))
        case _:
            return set()


@pytest.mark.parametrize(
    "chart", [PLOT, MAP, LANES, *(chart for group in made().groups for chart in group.charts)]
)
def test_a_specification_draws_only_columns_that_its_table_has(chart: Chart) -> None:
    specification = json.loads(data.whole(chart))
    table = list(csv.reader(io.StringIO(specification["data"]["values"])))
    assert fields(specification) <= set(table[0])
    assert {len(row) for row in table} == {len(table[0])}
    assert specification["$schema"].endswith("/v5.json")


ODD = "'FP8' \"skip\" \\ {{ 1 }} {% x %}\n</script> \u2028 é"


@pytest.mark.parametrize(
    ("chart", "labels"),
    [
        (
            replace(PLOT, x=replace(PLOT.x, label=ODD), y=replace(PLOT.y, label=ODD)),
            lambda found: [found["layer"][0]["encoding"][axis]["title"] for axis in "xy"],
        ),
        (
            replace(MAP, x_label=ODD, y_label=ODD, columns=(ODD, "128k"), rows=(ODD, "100%")),
            lambda found: [
                text
                for axis in "xy"
                for text in (found["encoding"][axis]["title"], found["encoding"][axis]["sort"][0])
            ],
        ),
        (
            replace(LANES, x=replace(LANES.x, label=ODD)),
            lambda found: [found["encoding"]["x"]["title"]],
        ),
    ],
    ids=["plot", "map", "lanes"],
)
def test_a_specification_says_titles_and_labels_as_they_are(
    chart: Chart, labels: Callable[[Any], list[str]]
) -> None:
    found = json.loads(data.whole(replace(chart, title=ODD, caption=ODD)))
    assert {found["title"], found["description"], *labels(found)} == {ODD}
