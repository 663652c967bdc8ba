from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentload.report.charts.draw import inline, picture
from agentload.report.charts.plot import scales
from agentload.report.charts.scale import fit, round_step
from agentload.report.charts.spec import (
    Band,
    Chart,
    ChartAxis,
    HeatMap,
    Plot,
    RuleLine,
    Series,
    Square,
    legend,
)
from agentload.report.format import tokens as format_tokens
from tests.report.golden import assert_golden

SVG = "{http://www.w3.org/2000/svg}"
PLOT = Plot(
    name="itl",
    title="Token latency against KV tokens",
    caption="Each mark is a call.",
    x=ChartAxis(label="KV tokens", quantity="tokens", low=0.0),
    y=ChartAxis(label="ms per token", quantity="ms"),
    series=(
        Series(label="BF16", slot=0, mark="points", xs=(1_024.0, 65_536.0), ys=(6.4, 9.3)),
        Series(
            label="FP8 <all>",
            slot=1,
            mark="points",
            xs=(1_024.0, 65_536.0),
            ys=(6.6, 8.2),
            tips=("short & fast", "long"),
        ),
        Series(label="BF16, fit", slot=0, mark="line", xs=(0.0, 70_000.0), ys=(6.3, 9.5)),
        Series(
            label="share", slot=None, mark="steps", xs=(0.0, 10_000.0, 20_000.0), ys=(6.0, 7.0, 8.0)
        ),
    ),
    bands=(
        Band(axis="x", low=2_400.0, high=10_500.0, label="break-even", slot=1),
        Band(axis="y", low=None, high=6.0, label="floor"),
    ),
    rules=(
        RuleLine(axis="y", at=9.0, label="SLO"),
        RuleLine(axis="x", at=40_000.0, label="own batch"),
    ),
)
MAP = HeatMap(
    name="accuracy",
    title="needle, FP8: accuracy, %",
    caption="By depth and length.",
    x_label="context",
    y_label="depth",
    columns=("8k", "128k"),
    rows=("0%", "100%"),
    cells=(
        Square(column=0, row=0, value=1.0, text="100", tip="20 of 20"),
        Square(column=1, row=1, value=0.05, text="5", tip="1 of 20", slot=1),
    ),
)


def test_a_plot_is_drawn_as_it_was_looked_at() -> None:
    assert_golden("plot.svg", picture(PLOT))


def test_a_heat_map_is_drawn_as_it_was_looked_at() -> None:
    assert_golden("heatmap.svg", picture(MAP))


def drawn(chart: Chart) -> ET.Element:
    return ET.fromstring(
        inline(chart).replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    )


def test_every_value_has_a_mark_that_says_what_it_is() -> None:
    tips = [title.text for title in drawn(PLOT).findall(f".//{SVG}g//{SVG}title")]
    assert tips == [
        "BF16: 1k tokens, 6.4 ms",
        "BF16: 64k tokens, 9.3 ms",
        "short & fast",
        "long",
        "BF16, fit: 0 tokens, 6.3 ms",
        "BF16, fit: 68k tokens, 9.5 ms",
        "share: 0 tokens, 6 ms",
        "share: 9.8k tokens, 7 ms",
        "share: 20k tokens, 8 ms",
    ]


def test_intervals_are_bars_that_fit_the_frame() -> None:
    value = Series(
        label="a",
        slot=0,
        mark="points",
        xs=(1.0, 2.0),
        ys=(5.0, 6.0),
        lows=(1.0, 5.5),
        highs=(20.0, 6.5),
    )
    plot = replace(PLOT, series=(value,), bands=(), rules=())
    bars = drawn(plot).findall(f".//{SVG}line[@class='bar']")
    x, y = scales(plot)
    starts = [float(bar.get(name) or 0) for bar in bars for name in ("x1", "y1")]
    assert starts == pytest.approx([x.at(1.0), y.at(1.0), x.at(2.0), y.at(5.5)], abs=0.1)
    assert all(y.end <= float(bar.get("y2") or 0) <= y.start for bar in bars)


def test_a_chart_names_itself_to_who_cannot_see_it() -> None:
    for chart in (PLOT, MAP):
        svg = drawn(chart)
        named = {element.get("id"): element.text for element in svg if element.get("id")}
        assert [named[part] for part in (svg.get("aria-labelledby") or "").split()] == [
            chart.title,
            chart.caption,
        ]


def test_an_arm_keeps_its_colour_and_shape_in_marks_lines_bands_and_legend() -> None:
    svg = drawn(PLOT)
    shapes = {
        group.get("class"): {mark.get("d") for mark in group if mark.get("class") == "mark"}
        for group in svg.iter(f"{SVG}g")
    }
    assert shapes["series arm-0"] != shapes["series arm-1"]
    assert svg.find(f".//{SVG}rect[@class='band arm-1']") is not None
    assert legend(PLOT) == (("BF16", 0), ("FP8 <all>", 1))
    assert legend(MAP) == ()


def test_the_axes_cover_values_rules_and_closed_ends_of_bands() -> None:
    x, y = scales(PLOT)
    assert (x.low, x.high) == (0.0, 70_000.0 * 1.03)
    assert (y.low, y.high) == (6.0, 10.0)


def test_stairs_go_across_before_they_go_up() -> None:
    steps = Plot(
        name="s",
        title="s",
        caption="",
        x=ChartAxis(label="x", quantity="count", low=0.0, high=2.0),
        y=ChartAxis(label="y", quantity="count", low=0.0, high=1.0),
        series=(Series(label="s", slot=0, mark="steps", xs=(0.0, 2.0), ys=(0.0, 1.0)),),
    )
    line = drawn(steps).find(f".//{SVG}path[@class='line']")
    assert line is not None
    assert line.get("d") == "M56,254L464,254L464,28"


def test_a_field_without_items_stays_empty() -> None:
    assert len(drawn(MAP).findall(f".//{SVG}g[@class='field arm-0']")) == 1


def test_the_names_of_many_arms_take_the_rows_they_need() -> None:
    arms = tuple(
        Series(label=f"a rather long name {slot}", slot=slot, mark="points", xs=(1.0,), ys=(1.0,))
        for slot in range(6)
    )
    svg = ET.fromstring(picture(replace(PLOT, title="t" * 200, series=arms)))
    frame = [float(part) for part in (svg.get("viewBox") or "").split()]
    words = [text for text in svg.iter(f"{SVG}text") if (text.text or "").startswith("a rather")]
    assert len({text.get("y") for text in words}) == 2
    assert all(
        float(text.get("x") or 0) + 6.2 * len(text.text or "") <= frame[0] + frame[2]
        for text in words
    )
    assert frame[3] == 300 + 26 + 2 * 18 + 18
    assert [
        len(text.text or "") for text in svg.iter(f"{SVG}text") if text.get("class") == "title"
    ] == [60]


LINEAR = ChartAxis(label="x", quantity="count")
LOG = ChartAxis(label="x", quantity="duration", scale="log")


@pytest.mark.parametrize(
    ("rough", "step"),
    [
        (0.9, 1.0),
        (1.0, 1.0),
        (1.1, 2.0),
        (2.4, 5.0),
        (6.0, 10.0),
        (0.03, 0.05),
        (12_000.0, 20_000.0),
    ],
)
def test_steps_between_ticks_are_round(rough: float, step: float) -> None:
    assert round_step(rough) == pytest.approx(step)


def test_an_axis_ends_on_ticks_where_it_is_left_open() -> None:
    scale = fit(LINEAR, [6.4, 11.9], start=0, end=100, ends="ticks")
    assert scale.ticks() == (6.0, 8.0, 10.0, 12.0)
    assert (scale.low, scale.high) == (6.0, 12.0)


@pytest.mark.parametrize("values", [[], [0.0], [0.0, -1.0]])
def test_a_log_axis_of_zeroes_alone_is_an_axis(values: list[float]) -> None:
    found = fit(LOG, values, start=0.0, end=100.0, ends="ticks")
    assert (found.low, found.high, found.ticks()) == (0.5, 2.0, (0.5, 1.0, 2.0))
    assert [found.at(value) for value in values] == [0.0] * len(values)


def test_a_log_axis_ticks_at_round_values_within_its_reach() -> None:
    assert fit(LOG, [40.0, 3_000.0], start=0, end=100, ends="values").ticks() == (
        50.0,
        100.0,
        200.0,
        500.0,
        1_000.0,
        2_000.0,
    )


@example([5e-324], "ticks")
@example([0.0, 1e-300], "values")
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.sampled_from(["ticks", "values"])
)
def test_every_value_lies_on_a_linear_axis_and_larger_values_lie_further(
    values: list[float], ends: str
) -> None:
    scale = fit(LINEAR, values, start=10, end=90, ends="ticks" if ends == "ticks" else "values")
    pixels = [scale.at(value) for value in sorted(values)]
    assert all(10 - 1e-6 <= pixel <= 90 + 1e-6 for pixel in pixels)
    assert all(before <= after for before, after in pairwise(pixels))
    assert 1 <= len(scale.ticks()) <= 8


@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=20))
def test_every_value_lies_on_a_log_axis(values: list[float]) -> None:
    scale = fit(LOG, values, start=10, end=90, ends="values")
    assert all(10 - 1e-6 <= scale.at(value) <= 90 + 1e-6 for value in values)
    assert len(scale.ticks()) <= 8


def test_values_that_cannot_be_drawn_do_not_stretch_the_axis() -> None:
    assert fit(LOG, [0.0, float("nan"), 10.0, 100.0], start=0, end=1, ends="values").low == 10.0


@pytest.mark.parametrize(
    ("high", "said"),
    [(4e3, "0 1k 2k 3k 4k"), (3.6 * 1024**2, "0 1M 2M 3M 4M"), (1.5 * 1024**2, "0 512k 1M 1.5M")],
)
def test_ticks_of_tokens_are_round_in_the_unit_that_names_them(high: float, said: str) -> None:
    axis = ChartAxis(label="context", quantity="tokens", low=0.0)
    scale = fit(axis, [high], start=0.0, end=1.0, ends="ticks")
    assert " ".join(format_tokens(tick) for tick in scale.ticks()) == said


def test_ticks_of_tokens_on_a_log_scale_double() -> None:
    axis = ChartAxis(label="context", quantity="tokens", scale="log")
    ticks = fit(axis, [100, 5e5], start=0.0, end=1.0, ends="values").ticks()
    assert [format_tokens(tick) for tick in ticks] == ["128", "512", "2k", "8k", "32k", "128k"]
    assert len(fit(axis, [9_000, 10_000], start=0.0, end=1.0, ends="values").ticks()) < 3
