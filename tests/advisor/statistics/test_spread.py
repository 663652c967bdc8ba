"""What is known of one figure, by its values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from advisor.statistics import resampling
from advisor.statistics.spread import Spread

T = Spread(value=-0.05, se=0.02, df=7, units=8, unit_name="block pairs")
MIXED = Spread.mixed(
    np.array([3.0, 1.0]),
    np.array([0.0, 0.02]),
    np.array([0.01, 0.03]),
    units=6,
    unit_name="block pairs",
)


@pytest.mark.parametrize("bound", [-0.12, -0.05, 0.0])
def test_tails_are_students(bound: float) -> None:
    assert T.p_below(bound) == pytest.approx(stats.t.sf((bound + 0.05) / 0.02, 7))
    assert T.p_above(bound) == pytest.approx(stats.t.cdf((bound + 0.05) / 0.02, 7))


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_intervals_leave_as_much_outside_as_they_say(level: float) -> None:
    assert T.interval(level) == pytest.approx(stats.t.interval(level, 7, -0.05, 0.02))
    low, high = MIXED.interval(level)
    assert MIXED.p_above(low) == pytest.approx((1 - level) / 2) == MIXED.p_below(high)
    estimate = T.relative(unit="relative", method="mean, over", level=level)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        tuple(map(math.expm1, (-0.05, *T.interval(level))))
    )
    assert T.relative(unit="relative", method="").level == 0.95
    assert (estimate.n, estimate.level, estimate.method) == (8, level, "mean, over, block pairs")


def test_what_has_no_error_is_claimed_or_not() -> None:
    sure = Spread(value=1.0, se=0.0, df=3, units=4, unit_name="starts")
    assert [sure.p_below(bound) for bound in (0.5, 1.0, 1.5)] == [1.0, 1.0, 0.0]
    assert [sure.p_above(bound) for bound in (0.5, 1.0, 1.5)] == [0.0, 1.0, 1.0]


def test_a_mixture_has_the_moments_of_its_parts_whatever_its_weights_add_up_to() -> None:
    assert MIXED.value == pytest.approx(0.005)
    assert MIXED.se**2 == pytest.approx(0.75 * (0.01**2 + 0.005**2) + 0.25 * (0.03**2 + 0.015**2))
    assert (MIXED.df, MIXED.units) == (5, 6)


@pytest.mark.parametrize("found", [T, MIXED])
def test_what_is_taken_off_moves_the_whole_distribution_and_its_error_widens_it(
    found: Spread,
) -> None:
    moved = found.shifted(0.03, 0.0)
    assert moved.interval() == pytest.approx(tuple(end - 0.03 for end in found.interval()))
    assert found.shifted(0.03, 0.04).se == pytest.approx(math.hypot(found.se, 0.04))
    widths = [high - low for low, high in (found.interval(), found.shifted(0.0, 0.04).interval())]
    assert widths[1] > widths[0]


@pytest.mark.parametrize(("units", "lost", "df"), [(12, 1, 11), (12, 3, 9), (2, 3, 1)])
def test_draws_are_widened_for_the_degrees_of_freedom_that_were_spent(
    units: int, lost: int, df: int
) -> None:
    drawn = np.array([1.0, 3.0, np.nan, 2.0, 2.0])
    found = resampling.spread(2.5, drawn, units=units, lost=lost)
    assert (found.value, found.df, found.units) == (2.5, df, units)
    assert found.se == pytest.approx(math.sqrt(0.5) * math.sqrt(units / df))
    assert resampling.spread(1.0, np.array([np.nan]), units=3).se == math.inf


def test_the_variance_of_a_mean_over_clusters_is_that_of_their_sums() -> None:
    values, index = np.array([1.0, 3.0, 0.0, 4.0, 2.0, 5.0]), np.array([0, 0, 1, 1, 2, 2])
    sums = np.array([4.0, 4.0, 7.0]) - 2 * 2.5
    assert resampling.cluster_variance(values, index) == pytest.approx(
        3 / 2 * float(sums @ sums) / 36
    )
    weights = resampling.draw_weights(5)
    assert weights.shape == (2000, 5)
    assert set(weights.sum(axis=1)) == {5.0}
