"""Levels are told apart as often as promised, on simulated histories whose truth is known."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.watch.levels import (
    FEWEST,
    LEVELS,
    SHORTEST,
    WINDOW,
    _energy,
    chance,
    change_points,
    is_shifted,
    level_start,
    looks,
    shift,
    strongest,
)
from tests.watch.calibration import false_share, found_share, noisy


@pytest.mark.slow
def test_of_20_000_quiet_runs_at_most_1_percent_raise_an_alarm() -> None:
    assert false_share(Random(8), histories=350, runs=60) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("before", [10, 20, 30])
def test_a_slowdown_of_5_percent_is_alarmed_within_three_runs_in_90_percent_of_histories(
    before: int,
) -> None:
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
    assert (is_shifted(found, smallest=0.03), is_shifted(found, smallest=0.03, series=10)) == (
        True,
        False,
    )


def test_looks_never_take_the_last_run_of_the_baseline() -> None:
    assert [(each.runs, each.baseline) for each in looks([0.0], [0.1])] == [(1, 1)]
    assert [(each.runs, each.baseline) for each in looks([0.0, 0.0, 0.0], [0.1])] == [
        (1, 3),
        (2, 2),
        (3, 1),
    ]


# Its Q was computed with apache-otava 0.8.0
# (PairDistanceCalculator, power 1), which follows the same paper.
BUMP = [
    0.0,
    0.011,
    -0.004,
    0.018,
    0.002,
    -0.013,
    0.007,
    0.009,
    -0.016,
    0.003,
    0.055,
    0.061,
    0.043,
    0.058,
    0.049,
    0.012,
    -0.006,
    0.004,
]
OTAVA = {
    (3, 6): -0.009333333333333332,
    (10, 15): 0.2717777777777777,
    (10, 18): 0.12608465608465613,
    (15, 18): 0.010412698412698478,
}


def energy(one: list[float], other: list[float]) -> float:
    """Write the scaled energy distance as the paper has it."""
    n, m = len(one), len(other)
    across = sum(abs(x - y) for x in one for y in other) * 2 / (n * m)
    within = [
        sum(abs(x - y) for x, y in combinations(side, 2)) / math.comb(len(side), 2)
        for side in (one, other)
    ]
    return (across - sum(within)) * n * m / (n + m)


def test_the_distance_is_that_of_an_independent_implementation() -> None:
    grid = _energy(np.array([BUMP]))[0]
    for (first, last), q in OTAVA.items():
        assert grid[first - SHORTEST, last - 2 * SHORTEST] == pytest.approx(q)
    at, strength = strongest(np.array(BUMP))
    assert at == 10
    assert strength == pytest.approx(OTAVA[10, 15])


@given(st.lists(st.floats(-1, 1), min_size=2 * SHORTEST, max_size=14))
def test_the_distance_is_that_of_the_definition(values: list[float]) -> None:
    grid = _energy(np.array([values]))[0]
    for first in range(SHORTEST, len(values) - SHORTEST + 1):
        for last in range(2 * SHORTEST, len(values) + 1):
            told = grid[first - SHORTEST, last - 2 * SHORTEST]
            if last - first < SHORTEST:
                assert told == -math.inf
            else:
                assert told == pytest.approx(energy(values[:first], values[first:last]), abs=1e-9)


def test_a_bump_has_two_changes_and_each_its_size() -> None:
    first, second = change_points([*BUMP, *BUMP[:5]])
    assert (first.at, second.at) == (10, 15)
    assert first.value == pytest.approx(math.expm1(np.mean(BUMP[10:15]) - np.mean(BUMP[:10])))
    assert second.value < -0.04


def test_equal_series_give_equal_answers() -> None:
    assert change_points(BUMP) == change_points(BUMP)


def test_nothing_is_said_of_few_runs_or_of_equal_ones() -> None:
    assert change_points([0.0] * 4 + [0.5] * (FEWEST - 5)) == ()
    assert change_points([0.0] * 40) == ()
    assert level_start([0.0] * 4 + [0.5] * (FEWEST - 5), smallest=0.03) is None


def test_only_the_latest_runs_are_searched_and_places_are_those_of_the_whole_series() -> None:
    quiet = [0.001 * (-1) ** place for place in range(WINDOW)]
    found = change_points([0.5] * 10 + quiet[:-20] + [each + 0.1 for each in quiet[-20:]])
    assert [each.at for each in found] == [10 + WINDOW - 20]


def test_a_level_that_lasts_is_told_unless_it_is_smaller_than_what_matters() -> None:
    quiet = BUMP[:10]
    lasting = [*quiet, *(each + 0.045 for each in quiet)]
    assert level_start(lasting, smallest=0.03) == 10
    assert level_start(lasting, smallest=0.05) is None
    assert level_start(quiet * 2, smallest=0.0) is None


@pytest.mark.slow
def test_quiet_runs_that_resemble_their_neighbours_change_level_no_more_often_than_the_level_says() -> (
    None
):
    rng, level, histories = Random(5), 0.05, 400
    ours = 0
    for seed in range(histories):
        values = np.array(noisy(rng, 30))
        ours += (
            chance(values, strongest(values)[1], np.random.default_rng(seed), level=level) < level
        )
    assert 0.015 <= ours / histories <= 0.08, ours


@pytest.mark.slow
def test_a_change_of_5_percent_is_placed_within_a_run_of_where_it_was() -> None:
    rng, near, histories = Random(6), 0, 100
    for _ in range(histories):
        values = [each + 0.05 * (place >= 20) for place, each in enumerate(noisy(rng, 40))]
        near += any(abs(each.at - 20) <= 1 for each in change_points(values))
    assert near / histories >= 0.85, near
