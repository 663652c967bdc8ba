"""Levels of looks and sizes of plans, by their values."""

from __future__ import annotations

import pytest
from scipy import stats

from advisor.statistics.accuracy import AnswerCounts, sign_test, slope_per_doubling, tango
from advisor.statistics.planning import (
    answer_level,
    holm_adjusted,
    look_level,
    planned_level,
    units_needed,
    z_reach,
)


@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_each_look_has_its_part_of_alpha(alpha: float) -> None:
    assert [look_level(look, alpha) for look in (1, 2, 3, 4)] == pytest.approx(
        [alpha / 2, alpha / 20, alpha / 40, alpha / 80]
    )
    assert planned_level(alpha) == pytest.approx(0.074 * alpha)
    of_starts = [planned_level(alpha, starts=starts) for starts in (1, 2, 3, 4, 8, 20)]
    assert of_starts == pytest.approx(
        [0.34 * alpha, 0.27 * alpha, 0.24 * alpha, 0.24 * alpha, 0.18 * alpha, 0.18 * alpha]
    )
    assert answer_level(alpha, planned=True) == pytest.approx(0.09 * alpha)
    assert answer_level(alpha, planned=False) == alpha / 2


@pytest.mark.parametrize(
    ("deviation", "margin", "level", "power"),
    [(0.02, 0.03, 0.0125, 0.9), (0.05, 0.03, 0.025, 0.8), (0.01, 0.03, 0.0125, 0.9)],
)
def test_the_planned_pairs_are_the_least_that_reach_the_margin(
    deviation: float, margin: float, level: float, power: float
) -> None:
    def settles(n: int) -> bool:
        return bool(
            deviation / n**0.5 * (stats.t.ppf(1 - level, n - 1) + stats.t.ppf(power, n - 1))
            <= margin
        )

    found = units_needed(deviation, margin, level=level, power=power)
    assert settles(found)
    assert not settles(found - 1)
    assert z_reach(level, power) == pytest.approx(stats.norm.ppf(1 - level) + stats.norm.ppf(power))
    assert units_needed(0.0, margin) == 3
    assert (
        units_needed(1.0, margin)
        > 1000
        > units_needed(0.1, margin)
        > units_needed(deviation, margin)
    )


def test_holm_is_holm() -> None:
    assert holm_adjusted((0.01, 0.04, 0.03)) == pytest.approx((0.03, 0.06, 0.06))
    assert holm_adjusted((0.9, 0.8)) == (1.0, 1.0)
    assert holm_adjusted(()) == ()


@pytest.mark.parametrize("items", [(100.0,) * 5, (10.0, 200.0, 50.0, 400.0, 30.0)])
def test_the_trend_over_length_is_weighted_least_squares(items: tuple[float, ...]) -> None:
    lengths, differences = (
        (4096.0, 8192.0, 16384.0, 32768.0, 65536.0),
        (0.01, -0.02, 0.0, -0.05, -0.04),
    )
    found = slope_per_doubling(lengths, differences, items)
    assert found is not None
    if len(set(items)) == 1:
        plain = stats.linregress(range(5), differences)
        assert found == pytest.approx((plain.slope, plain.pvalue))
    else:
        mean = [
            sum(w * each for w, each in zip(items, of, strict=True)) / sum(items)
            for of in (range(5), differences)
        ]
        top = sum(
            w * (x - mean[0]) * (y - mean[1])
            for w, x, y in zip(items, range(5), differences, strict=True)
        )
        assert found[0] == pytest.approx(
            top / sum(w * (x - mean[0]) ** 2 for w, x in zip(items, range(5), strict=True))
        )
        assert 0 < found[1] < 1


def test_a_trend_takes_three_lengths_and_a_difference() -> None:
    assert slope_per_doubling((1024.0, 2048.0, 2048.0), (0.0, 0.1, 0.2), (5.0,) * 3) is None
    assert slope_per_doubling(
        (1024.0, 2048.0, 4096.0), (0.0, 0.1, 0.2), (5.0,) * 3
    ) == pytest.approx((0.1, 0.0), abs=1e-6)
    assert slope_per_doubling((1024.0, 2048.0, 4096.0), (0.1,) * 3, (5.0,) * 3) == (0.0, 1.0)


def test_no_difference_of_shares_is_larger_than_one() -> None:
    all_won, all_lost = (
        tango(AnswerCounts(reference_only=lost, arm_only=10 - lost, n=10)) for lost in (0, 10)
    )
    assert (all_won.value, all_won.high, all_lost.value, all_lost.low) == (1.0, 1.0, -1.0, -1.0)
    assert all_won.low == pytest.approx(-(all_lost.high or 0.0))


def test_buckets_that_did_not_move_carry_no_sign() -> None:
    assert (sign_test((0.0, 0.0)).p, sign_test((0.0, 0.0)).all_down) == (1.0, False)
    mixed = sign_test((-0.1, 0.0, 0.2, -0.3))
    assert (mixed.down, mixed.up, mixed.still, mixed.all_down) == (2, 1, 1, False)
    assert sign_test((-0.1, 0.0)).all_down
