from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from advisor.assess.lines import ttft_curve
from advisor.statistics.line import itl_line, on_grid
from advisor.verdict import ItlLine
from tests.advisor.published import ITL_MS, LLAMA_TTFT_LONG_MS, plotted_sweep
from tests.advisor.worlds import simulated_sweep


def _line(intercept: float, slope: float, seed: int = 1, noise: float = 0.01) -> ItlLine:
    sweep = simulated_sweep(
        np.random.default_rng(seed), arm="bf16", intercept=intercept, slope=slope, noise=noise
    )
    found = itl_line(
        "bf16",
        users=1,
        pair=sweep.pair,
        batch_tokens=sweep.context_tokens,
        itl_ms=sweep.itl_ms,
        kv_bytes_per_token=131072,
    )
    assert found is not None
    return found


@pytest.mark.slow
def test_the_slope_is_recovered_covered_and_turned_into_bandwidth() -> None:
    lines = [_line(6.44, 4.37e-5, seed) for seed in range(200)]
    slopes = [each.slope_ms_per_token for each in lines]
    assert np.median([each.value for each in slopes]) == pytest.approx(4.37e-5, rel=0.01)
    assert (
        0.91
        <= np.mean([(each.low or 0) <= 4.37e-5 <= (each.high or 1) for each in slopes])
        <= 0.985
    )
    bandwidth = lines[0].bandwidth_tb_s
    assert bandwidth is not None
    assert bandwidth.value == pytest.approx(3.0, rel=0.03)
    assert np.mean([each.straight for each in lines]) > 0.9


@pytest.mark.slow
def test_the_weighted_fit_is_statsmodels_weighted_fit() -> None:
    sm = import_module("statsmodels.api")
    points = ITL_MS["llama-h100", "bf16"]
    x, y = np.array(list(points), dtype=np.float64), np.array(list(points.values()))
    theirs = sm.WLS(y, sm.add_constant(x), weights=1 / y**2).fit()
    ours = itl_line(
        "bf16", users=1, pair=np.zeros(x.size, dtype=np.int64), batch_tokens=x, itl_ms=y
    )
    assert ours is not None
    assert ours.slope_ms_per_token.value == pytest.approx(theirs.params[1])
    assert (ours.slope_ms_per_token.low, ours.slope_ms_per_token.high) == pytest.approx(
        tuple(theirs.conf_int()[1])
    )


def test_a_bend_is_called_not_straight() -> None:
    rng = np.random.default_rng(2)
    sweep = simulated_sweep(rng, arm="bf16", intercept=6.4, slope=4.4e-5, pairs=8)
    bent = np.where(sweep.context_tokens > 60_000, 1.06, 1.0) * sweep.itl_ms
    found = itl_line(
        "bf16", users=1, pair=sweep.pair, batch_tokens=sweep.context_tokens, itl_ms=bent
    )
    assert found is not None
    assert found.lack_of_fit_p is not None
    assert found.lack_of_fit_p < 0.01
    assert not found.straight


def test_outliers_at_one_length_drive_the_two_fits_apart() -> None:
    sweep = plotted_sweep(
        "bf16", {1024: 4.0, 2048: 4.01, 4096: 4.02, 8192: 4.06, 16384: 4.12, 32768: 9.0}
    )
    found = itl_line(
        "bf16", users=1, pair=sweep.pair, batch_tokens=sweep.context_tokens, itl_ms=sweep.itl_ms
    )
    assert found is not None
    assert not found.straight


def test_lengths_that_differ_by_a_few_tokens_are_one_length() -> None:
    grid = on_grid(
        np.array([1, 1, 2, 2, 1]),
        np.array([1000.0, 4000, 1004, 4010, 4001]),
        np.array([1.0, 2, 3, 4, np.nan]),
    )
    assert np.array_equal(grid.values, [[1.0, 2.0], [3.0, 4.0]])
    assert grid.lengths == pytest.approx([1002, 4005])


def test_the_prefill_curve_is_recovered_from_cached_and_cold_prompts() -> None:
    rng = np.random.default_rng(3)
    shape = (8, 10, 2)
    pair = np.indices(shape)[0].ravel()
    computed = np.geomspace(1000, 100_000, 10)[np.indices(shape)[1].ravel()]
    prompt = computed + np.where(np.indices(shape)[2].ravel() == 1, 30_000, 0)
    truth = 3.9e-7 * (prompt**2 - (prompt - computed) ** 2) + 0.027 * computed + 12
    found = ttft_curve(
        "bf16",
        pair=pair,
        computed_tokens=computed,
        prompt_tokens=prompt,
        ttft_ms=truth * np.exp(rng.normal(0, 0.02, truth.size)),
    )
    assert found is not None
    for estimate, true in ((found.a, 3.9e-7), (found.b, 0.027), (found.c, 12)):
        assert (estimate.low or 0) * 0.97 <= true <= (estimate.high or 0) * 1.03
        assert estimate.value == pytest.approx(true, rel=0.12)


@pytest.mark.slow
def test_three_pairs_cover_the_prefill_curve_as_often_as_they_claim() -> None:
    rng = np.random.default_rng(5)
    tokens = np.tile(np.geomspace(2000, 60_000, 6), 3)
    pair, runs, covered = np.repeat(np.arange(3), 6), 50, 0
    for _ in range(runs):
        level = np.exp(rng.normal(0, 0.03, 3))[pair]
        ttft = (
            (4e-7 * tokens**2 + 0.03 * tokens + 20)
            * level
            * np.exp(rng.normal(0, 0.005, tokens.size))
        )
        found = ttft_curve("bf16", pair=pair, computed_tokens=tokens, ttft_ms=ttft)
        assert found is not None
        covered += (found.b.low or 0) <= 0.03 <= (found.b.high or 0)
    assert 0.88 <= covered / runs <= 1.0  # the range of three covers 75%


def test_no_published_point_makes_the_prefill_curve_negative() -> None:
    lengths = np.array(list(LLAMA_TTFT_LONG_MS), dtype=np.float64)
    ttft = np.array(list(LLAMA_TTFT_LONG_MS.values()))
    found = ttft_curve(
        "fp8", pair=np.zeros(lengths.size, dtype=np.int64), computed_tokens=lengths, ttft_ms=ttft
    )
    assert found is not None
    assert min(found.a.value, found.b.value, found.c.value) >= 0
    fitted = found.a.value * lengths**2 + found.b.value * lengths + found.c.value
    assert fitted == pytest.approx(ttft, rel=0.05)


def test_three_lengths_are_no_prefill_curve() -> None:
    tokens = np.array([1000.0, 2000, 3000])
    assert (
        ttft_curve("fp8", pair=np.zeros(3, dtype=np.int64), computed_tokens=tokens, ttft_ms=tokens)
        is None
    )


def test_calls_that_repeat_a_length_within_a_pair_count_as_their_median() -> None:
    tokens = np.tile(np.geomspace(2000, 60_000, 6), 4)
    pair, rng = np.repeat(np.arange(4), 6), np.random.default_rng(6)
    ttft = (4e-7 * tokens**2 + 0.03 * tokens + 20) * np.exp(rng.normal(0, 0.02, tokens.size))
    once = ttft_curve("fp8", pair=pair, computed_tokens=tokens, ttft_ms=ttft)
    again = ttft_curve(
        "fp8",
        pair=np.repeat(pair, 3),
        computed_tokens=np.repeat(tokens, 3),
        ttft_ms=np.repeat(ttft, 3),
    )
    assert once is not None
    assert again is not None
    assert (again.a.method, again.a.n) == (once.a.method, 4)
    for found, known in ((again.a, once.a), (again.b, once.b), (again.c, once.c)):
        assert (found.value, found.low, found.high) == pytest.approx(
            (known.value, known.low, known.high), abs=1e-9
        )
