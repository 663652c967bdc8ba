from dataclasses import replace
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from agentload.report.charts.forest import WIDTH, ForestRows, first_group, forest_rows
from agentload.report.charts.spec import Band, ChartAxis, Lanes, LaneSpan, RuleLine

SVG = "{http://www.w3.org/2000/svg}"


def interval(lane: int, low: float, high: float, slot: int = 1) -> LaneSpan:
    at = (low + high) / 2
    return LaneSpan(lane=lane, look="interval", low=low, high=high, at=at, slot=slot)


CHART = Lanes(
    name="differences",
    title="Change against BF16",
    caption="",
    x=ChartAxis(label="change, %", quantity="percent", low=-400.0, high=400.0),
    lanes=("your mix", " turn latency", " time to first token", "rag", " turn latency"),
    spans=(interval(1, -83.0, -81.0), interval(2, -97.0, -96.0), interval(4, 300.0, 390.0)),
    bands=(Band(axis="x", low=-3.0, high=3.0),),
    rules=(RuleLine(axis="x", at=0.0),),
)
MIX = first_group(CHART)
NAMES = ("turn latency, median", "time to first token")


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(str(drawn).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))


def ends(found: ForestRows, name: str) -> tuple[float, float]:
    bar = parsed(found.rows[name]).find(f".//{SVG}line[@class='bar']")
    assert bar is not None
    return float(bar.get("x1") or 0), float(bar.get("x2") or 0)


def test_the_mix_is_what_stands_below_the_first_heading() -> None:
    assert MIX.lanes == ("turn latency", "time to first token")
    assert [span.lane for span in MIX.spans] == [0, 1]


def test_a_lane_is_drawn_into_the_row_of_its_name() -> None:
    assert list(forest_rows(MIX, NAMES).rows) == list(NAMES)
    assert list(forest_rows(MIX, (None, "time to first token")).rows) == ["time to first token"]


def test_the_axis_reaches_no_further_than_what_is_shown() -> None:
    """Gains of 80 and 97% leave no half of the axis to losses that nobody saw."""
    found = forest_rows(MIX, NAMES)
    band = parsed(found.rows["time to first token"]).find(f".//{SVG}rect[@class='band']")
    assert band is not None
    right = float(band.get("x") or 0) + float(band.get("width") or 0)
    assert ends(found, "time to first token")[0] < 0.1 * WIDTH
    assert right > 0.9 * WIDTH
    assert "−50%" in found.head
    assert "+50%" not in found.head


@given(st.lists(st.tuples(st.floats(-99, 300), st.floats(0, 80)), min_size=2, max_size=2))
def test_every_interval_lies_inside_its_picture_and_left_of_a_larger_one(
    drawn: list[tuple[float, float]],
) -> None:
    spans = tuple(interval(lane, low, low + wide) for lane, (low, wide) in enumerate(drawn))
    found = forest_rows(replace(MIX, spans=spans), NAMES)
    (a, b), (c, d) = (ends(found, name) for name in NAMES)
    assert 0 <= min(a, b, c, d) <= max(a, b, c, d) <= WIDTH
    if spans[0].high < spans[1].low:
        assert b <= c + 0.11
