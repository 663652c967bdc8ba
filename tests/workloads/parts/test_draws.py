"""Draws are compared with the laws they stand for, as scipy knows them."""

from random import Random
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    exponential,
    gamma,
    gaussian,
    geometric,
    inverse_gaussian,
    log_uniform,
    lognormal,
    mixture,
    normal,
    permutation,
    quantiles,
    seconds,
    tokens,
    uniform,
)

SHARES = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
TABLE = quantiles((0, 1), (0.1, 10), (0.5, 100), (0.9, 400), (1, 1000))


@given(st.floats(0, 1, exclude_max=True))
def test_the_normal_quantile_is_right_to_six_digits(share: float) -> None:
    assert normal(share) == pytest.approx(
        NormalDist().inv_cdf(max(share, 2.0**-54)), abs=2e-6, rel=1e-6
    )


@pytest.mark.parametrize(
    ("distribution", "law"),
    [
        (lognormal(655, 1.13), stats.lognorm(1.13, scale=655)),
        (gaussian(500, 300, -1e9, 1e9), stats.norm(500, 300)),
        (uniform(3, 8), stats.uniform(3, 5)),
        (log_uniform(1, 10), stats.loguniform(1, 10)),
        (exponential(8_000), stats.expon(scale=8_000)),
        (inverse_gaussian(815, 200, 1, 100_000), stats.invgauss(815 / 200, scale=200)),
    ],
)
def test_quantiles_are_those_of_the_law(
    distribution: Distribution, law: stats.rv_continuous
) -> None:
    assert [distribution(share) for share in SHARES] == pytest.approx(law.ppf(SHARES), rel=2e-3)


@pytest.mark.parametrize(
    "distribution",
    [lognormal(100, 2, 30, 200), gaussian(100, 90, 30, 200), exponential(100, 30, 200)],
)
def test_what_is_clipped_stays_within_its_bounds(distribution: Distribution) -> None:
    values = [distribution(share / 1000) for share in range(1000)]
    assert (min(values), max(values)) == (30, 200)


def test_a_table_goes_through_its_points_and_is_logarithmic_between_them() -> None:
    assert [TABLE(share) for share in (0, 0.1, 0.5, 0.9)] == pytest.approx([1, 10, 100, 400])
    assert TABLE(0.3) == pytest.approx((10 * 100) ** 0.5)
    assert TABLE(0.999999) < 1000


def test_a_geometric_counts_from_its_lowest_value() -> None:
    drawn = [geometric(2, low=1)(share / 10_000) for share in range(10_000)]
    assert min(drawn) == 1
    assert np.mean(drawn) == pytest.approx(3, rel=0.01)


def test_a_mixture_draws_its_parts_by_weight() -> None:
    drawn = [
        mixture((3, uniform(0, 1)), (1, uniform(10, 11)))(share / 1000) for share in range(1000)
    ]
    assert sum(value > 5 for value in drawn) == 250


def test_a_choice_draws_indexes_by_weight() -> None:
    rng = Random(7)
    picks = [WeightedChoice((1, 0, 3)).pick(rng) for _ in range(4000)]
    assert picks.count(1) == 0
    assert picks.count(2) == pytest.approx(3000, rel=0.05)


@pytest.mark.parametrize("shape", [0.006, 0.25, 1.0, 4.0])
def test_gamma_draws_follow_their_law(shape: float) -> None:
    rng = Random(7)
    assert (
        stats.kstest([gamma(rng, shape=shape) for _ in range(3000)], stats.gamma(shape).cdf).pvalue
        > 0.01
    )


def test_lengths_are_whole_and_at_least_one_and_durations_are_milliseconds() -> None:
    rng = Random(7)
    assert tokens(rng, uniform(0, 0.4)) == 1
    assert tokens(rng, uniform(41.6, 42.4)) == 42
    assert seconds(rng, uniform(1.23451, 1.23549)) == 1.235


@given(st.lists(st.integers()), st.integers())
def test_a_shuffle_keeps_what_it_shuffles(values: list[int], seed: int) -> None:
    assert sorted(permutation(Random(seed), values)) == sorted(values)
