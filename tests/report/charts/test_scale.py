from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentload.report.charts.scale import fitted, round_step
from agentload.report.charts.spec import Axis

LINEAR = Axis(label="x", quantity="count")
LOG = Axis(label="x", quantity="duration", scale="log")


@pytest.mark.parametrize(
    ("rough", "step"), [(0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (2.4, 5.0), (6.0, 10.0), (0.03, 0.05), (12_000.0, 20_000.0)]
)
def test_steps_between_ticks_are_round(rough: float, step: float) -> None:
    assert round_step(rough) == pytest.approx(step)


def test_an_axis_ends_on_ticks_where_it_is_left_open() -> None:
    scale = fitted(LINEAR, [6.4, 11.9], start=0, end=100, ends="ticks")
    assert scale.ticks() == (6.0, 8.0, 10.0, 12.0)
    assert (scale.low, scale.high) == (6.0, 12.0)


def test_a_log_axis_ticks_at_round_values_within_its_reach() -> None:
    assert fitted(LOG, [40.0, 3_000.0], start=0, end=100, ends="values").ticks() == (50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)


@example([5e-324], "ticks")
@example([0.0, 1e-300], "values")
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.sampled_from(["ticks", "values"]))
def test_every_value_lies_on_a_linear_axis_and_larger_values_lie_further(values: list[float], ends: str) -> None:
    scale = fitted(LINEAR, values, start=10, end=90, ends="ticks" if ends == "ticks" else "values")
    pixels = [scale.at(value) for value in sorted(values)]
    assert all(10 - 1e-6 <= pixel <= 90 + 1e-6 for pixel in pixels)
    assert all(before <= after for before, after in pairwise(pixels))
    assert 1 <= len(scale.ticks()) <= 8


@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=20))
def test_every_value_lies_on_a_log_axis(values: list[float]) -> None:
    scale = fitted(LOG, values, start=10, end=90, ends="values")
    assert all(10 - 1e-6 <= scale.at(value) <= 90 + 1e-6 for value in values)
    assert len(scale.ticks()) <= 8


def test_values_that_cannot_be_drawn_do_not_stretch_the_axis() -> None:
    assert fitted(LOG, [0.0, float("nan"), 10.0, 100.0], start=0, end=1, ends="values").low == 10.0
