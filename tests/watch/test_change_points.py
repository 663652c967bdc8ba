"""Changes of level are found where they are, told apart from noise that resembles its neighbours, and not before ten runs."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.watch.change_points import FEWEST, SHORTEST, WINDOW, _energy, chance, change_points, strongest, turned
from tests.watch.calibration import noisy

# Its Q was computed with apache-otava 0.8.0 (PairDistanceCalculator, power 1), which follows the same paper.
BUMP = [0.0, 0.011, -0.004, 0.018, 0.002, -0.013, 0.007, 0.009, -0.016, 0.003, 0.055, 0.061, 0.043, 0.058, 0.049, 0.012, -0.006, 0.004]
OTAVA = {(3, 6): -0.009333333333333332, (10, 15): 0.2717777777777777, (10, 18): 0.12608465608465613, (15, 18): 0.010412698412698478}


def energy(one: list[float], other: list[float]) -> float:
    """Write the scaled energy distance as the paper has it."""
    n, m = len(one), len(other)
    across = sum(abs(x - y) for x in one for y in other) * 2 / (n * m)
    within = [sum(abs(x - y) for x, y in combinations(side, 2)) / math.comb(len(side), 2) for side in (one, other)]
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


def test_equal_seeds_give_equal_answers() -> None:
    assert change_points(BUMP, seed=3) == change_points(BUMP, seed=3)


def test_nothing_is_said_of_few_runs_or_of_equal_ones() -> None:
    assert change_points([0.0] * 4 + [0.5] * (FEWEST - 5)) == ()
    assert change_points([0.0] * 40) == ()
    assert turned([0.0] * 4 + [0.5] * (FEWEST - 5), smallest=0.03) is None


def test_only_the_latest_runs_are_searched_and_places_are_those_of_the_whole_series() -> None:
    quiet = [0.001 * (-1) ** place for place in range(WINDOW)]
    found = change_points([0.5] * 10 + quiet[:-20] + [each + 0.1 for each in quiet[-20:]])
    assert [each.at for each in found] == [10 + WINDOW - 20]


def test_a_level_that_lasts_is_told_unless_it_is_smaller_than_what_matters() -> None:
    quiet = BUMP[:10]
    lasting = [*quiet, *(each + 0.045 for each in quiet)]
    assert turned(lasting, smallest=0.03) == 10
    assert turned(lasting, smallest=0.05) is None
    assert turned(quiet * 2, smallest=0.0) is None


@pytest.mark.slow
def test_quiet_runs_that_resemble_their_neighbours_change_level_no_more_often_than_the_level_says() -> None:
    rng, level, histories = Random(5), 0.05, 400
    ours = 0
    for seed in range(histories):
        values = np.array(noisy(rng, 30))
        ours += chance(values, strongest(values)[1], np.random.default_rng(seed), level=level) < level
    assert 0.015 <= ours / histories <= 0.08, ours


@pytest.mark.slow
def test_a_change_of_5_percent_is_placed_within_a_run_of_where_it_was() -> None:
    rng, near, histories = Random(6), 0, 100
    for seed in range(histories):
        values = [each + 0.05 * (place >= 20) for place, each in enumerate(noisy(rng, 40))]
        near += any(abs(each.at - 20) <= 1 for each in change_points(values, seed=seed))
    assert near / histories >= 0.85, near
