"""Levels are told apart as often as promised, on simulated histories whose truth is known."""

from __future__ import annotations

import math
from random import Random

import pytest

from agentload.watch.levels import LEVELS, is_shifted, looks, shift
from tests.watch.calibration import false_share, found_share, noisy


@pytest.mark.slow
def test_of_20_000_quiet_runs_at_most_1_percent_raise_an_alarm() -> None:
    assert false_share(Random(8), histories=350, runs=60) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("before", [10, 20, 30])
def test_a_slowdown_of_5_percent_is_alarmed_within_three_runs_in_90_percent_of_histories(before: int) -> None:
    assert found_share(Random(before), histories=400, before=before, by=0.05) >= 0.9


@pytest.mark.slow
def test_a_slowdown_near_what_matters_is_found_once_it_has_lasted() -> None:
    assert found_share(Random(1), histories=100, before=20, by=0.035, within=10) >= 0.85


@pytest.mark.slow
def test_the_interval_of_a_shift_holds_the_truth_as_often_as_it_says() -> None:
    rng = Random(4)
    inside = 0
    for _ in range(2000):
        values = noisy(rng, 23)
        found = shift(values[:20], [each + math.log1p(0.05) for each in values[20:]])
        inside += found.low <= 0.05 <= found.high
    assert 0.94 <= inside / 2000 <= 0.965


def test_the_last_run_before_a_change_counts_most() -> None:
    quiet = [0.0] * 9
    (after_low, after_high) = (shift([*quiet, last], [0.05]).value for last in (-0.02, 0.02))
    assert after_low > after_high  # a run that was slow lets the next one be slow
    earlier = [shift([last, *quiet], [0.05]).value for last in (-0.02, 0.02)]
    assert abs(after_low - after_high) > abs(earlier[0] - earlier[1])


def test_a_shift_has_an_interval_that_narrows_with_history() -> None:
    few, many = shift([0.0], [0.08]), shift([0.0, 0.001, -0.001] * 8, [0.08])
    assert (few.runs, few.baseline, many.baseline) == (1, 1, 24)
    assert few.low < many.low < many.value < many.high < few.high
    assert math.isclose(few.value, math.expm1(0.08))


def test_a_run_that_is_uncertain_in_itself_is_no_shift() -> None:
    quiet = [0.0, 0.002, -0.002] * 8
    assert is_shifted(shift(quiet, [0.08]), smallest=0.03)
    assert not is_shifted(shift(quiet, [0.08], error=0.05), smallest=0.03)


def test_runs_that_refute_the_guess_of_their_scatter_replace_it() -> None:
    restless = [0.04 * (-1) ** place for place in range(12)]
    guessed, told = (shift(restless, [0.1], noise=noise) for noise in (0.015, 0.04))
    assert not is_shifted(guessed, smallest=0.03)
    assert guessed.p > told.p  # nothing but the runs themselves, which are few


def test_a_shift_below_what_matters_is_none_however_certain() -> None:
    assert not is_shifted(shift([0.0] * 30, [0.02] * 3, noise=0.0005), smallest=0.03)


def test_series_share_the_error_rate() -> None:
    found = shift([0.0] * 12, [0.044])
    assert LEVELS[0] / 10 < found.p < LEVELS[0]
    assert (is_shifted(found, smallest=0.03), is_shifted(found, smallest=0.03, series=10)) == (True, False)


def test_looks_never_take_the_last_run_of_the_baseline() -> None:
    assert [(each.runs, each.baseline) for each in looks([0.0], [0.1])] == [(1, 1)]
    assert [(each.runs, each.baseline) for each in looks([0.0, 0.0, 0.0], [0.1])] == [(1, 3), (2, 2), (3, 1)]
