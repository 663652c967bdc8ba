"""Quantiles and tails, by their values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from advisor.statistics.quantiles import Tail, independent, quantile, tails
from advisor.statistics.resampling import cluster_variance


@pytest.mark.parametrize(("q", "n"), [(0.5, 100), (0.5, 101), (0.95, 200), (0.99, 400), (0.05, 60)])
def test_a_quantile_of_independent_values_lies_between_the_order_statistics_of_the_binomial(
    q: float, n: int
) -> None:
    values = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    found = quantile(values, np.arange(n), q, unit="ms")
    assert found is not None
    below, above = (int(stats.binom.ppf(each, n, q)) for each in (0.025, 0.975))
    assert (found.value, found.low, found.high) == (
        math.ceil(q * n - 1e-9),
        below or None,
        above + 1 if above < n else None,
    )
    assert (found.n, found.level, found.unit) == (n, 0.95, "ms")
    wider = quantile(values, np.arange(n), q, unit="ms", level=0.99)
    assert wider is not None
    assert (wider.low or 0.0) <= (found.low or 0.0)


def test_calls_of_a_session_that_are_all_alike_count_as_one() -> None:
    once = quantile(np.arange(1.0, 101), np.arange(100), 0.5, unit="ms")
    often = quantile(
        np.repeat(np.arange(1.0, 101), 4), np.repeat(np.arange(100), 4), 0.5, unit="ms"
    )
    assert once is not None
    assert often is not None
    assert (often.value, often.n) == (50.0, 100)
    assert often.low == pytest.approx(once.low, abs=1)
    assert often.high == pytest.approx(once.high, abs=1)
    assert often.method.endswith("400 calls in 100 sessions, effective 99")


def test_a_quantile_or_an_end_among_what_never_ended_is_not_known() -> None:
    values = np.arange(1.0, 101)
    values[55:] = math.inf
    found = quantile(values, np.arange(100), 0.5, unit="ms")
    assert found is not None
    assert (found.value, found.low, found.high) == (50.0, 40.0, None)
    values[49:] = math.inf
    assert quantile(values, np.arange(100), 0.5, unit="ms") is None
    assert quantile(np.full(3, np.nan), np.arange(3), 0.5, unit="ms") is None


def test_turns_above_a_quantile_that_fall_together_are_fewer_than_they_are() -> None:
    values = np.arange(1.0, 101)
    apart, together = np.arange(100) % 20, np.minimum(np.arange(100) // 5, 19)
    above = (values > 95).astype(np.float64)
    for blocks in (apart, together):
        expected = 100 / max(1.0, cluster_variance(above, blocks) * 100 / (0.05 * 0.95))
        assert independent(values, blocks, 0.95) == pytest.approx(expected)
    assert independent(values, together, 0.95) < 25 < independent(values, apart, 0.95)
    assert independent(np.ones(50), apart[:50], 0.95) == 0
    assert independent(values, np.zeros(100, dtype=np.int64), 0.95) == 100


def _tail(times: float) -> Tail:
    rng = np.random.default_rng(3)
    blocks = np.repeat(np.arange(10), 60)
    reference, arm = rng.exponential(size=(2, 600))
    return Tail(
        q=0.95, turns=600.0, ratio=times, samples=((reference, blocks), (times * arm, blocks))
    )


@pytest.mark.parametrize("times", [0.8, 1.0, 1.4])
def test_whether_a_tail_is_longer_is_a_t_test_over_blocks(times: float) -> None:
    tail = _tail(1.4)
    (reference, blocks), (arm, _) = tail.samples
    pooled = np.sort(np.concatenate([reference, arm / times]))
    bound = pooled[math.ceil(0.95 * 1200) - 1]
    more = [
        float(
            np.sum(arm[blocks == each] / times > bound) - np.sum(reference[blocks == each] > bound)
        )
        / 600
        for each in range(10)
    ]
    assert tail.p_longer(times) == pytest.approx(
        stats.ttest_1samp(more, 0.0, alternative="greater").pvalue
    )


def test_the_least_ratio_is_where_the_test_is_as_sure_as_it_has_to_be() -> None:
    tail = _tail(1.6)
    least = tail.least(0.05)
    assert 1.0 < least < 1.6
    assert tail.p_longer(least * 0.97) <= 0.05 < tail.p_longer(least * 1.03)
    assert tail.least(1e-9) == pytest.approx(1.0, abs=1e-4)


def test_tails_are_told_of_blocks_that_both_arms_played() -> None:
    rng = np.random.default_rng(4)
    blocks = np.repeat(np.arange(8), 100)
    values = rng.exponential(size=800)
    found, turns = tails(values, blocks, 2 * values, blocks)
    assert [each.q for each in found] == [0.99, 0.95]
    assert [each.ratio for each in found] == pytest.approx([2.0, 2.0])
    assert turns == found[-1].turns == pytest.approx(independent(values, blocks, 0.95))
    few, _ = tails(values, blocks, values, np.where(blocks < 4, blocks, blocks + 100))
    assert {float(where.max()) for each in few for _, where in each.samples} == {3.0}
    for shared in (3, 1, 0):
        assert (
            tails(values, blocks, values, np.where(blocks < shared, blocks, blocks + 100))[0] == ()
        )


def test_calls_that_are_each_a_session_are_worth_what_they_are_and_those_of_one_session_are_one() -> (
    None
):
    values = np.arange(1.0, 201)
    alone = quantile(values, np.arange(200), 0.5, unit="ms")
    assert alone is not None
    assert alone.method == "order statistics of 200 calls in 200 sessions, effective 200"
    # Two calls a session, as different as any two: none
    # resembles its neighbour, and nothing is lost.
    apart = quantile(values, np.arange(200) % 100, 0.5, unit="ms")
    assert apart is not None
    assert apart.method == "order statistics of 200 calls in 100 sessions, effective 200"


def test_a_bound_may_be_the_first_of_all_values_and_is_open_below_it() -> None:
    found, fewer = (
        quantile(np.arange(1.0, n + 1), np.arange(n), 0.05, unit="ms") for n in (100, 70)
    )
    assert found is not None
    assert (found.value, found.low) == (5.0, 1.0)
    assert fewer is not None
    assert fewer.low is None
