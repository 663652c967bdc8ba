"""Lines over a grid of pairs and lengths, and where two of them cross, by their values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from advisor.evidence import Calls, Ints
from advisor.statistics.break_even import (
    break_even_from_calls,
    break_even_of_line,
    fieller,
    with_starts,
)
from advisor.statistics.line import FittedLine, Grid, fit, itl_line, length_index

X = np.array([1000.0, 4000.0, 16000.0, 64000.0])


def _grid(pairs: int, seed: int = 1) -> Grid:
    rng = np.random.default_rng(seed)
    return Grid(
        pairs=np.arange(pairs), lengths=X, values=5 + 4e-5 * X + rng.normal(0, 0.05, (pairs, 4))
    )


@pytest.mark.parametrize("pairs", [3, 6])
def test_each_pair_is_a_line_and_their_scatter_is_the_error(pairs: int) -> None:
    grid, scale = _grid(pairs), np.array([1.0, 1.0, 2.0, 4.0])
    found = fit(grid, scale)
    assert found is not None
    each = np.array([np.polyfit(X, row, 1, w=1 / scale) for row in grid.values])
    slope, intercept = each.mean(axis=0)
    assert (found.slope, found.intercept) == pytest.approx((slope, intercept))
    residuals = grid.values - each[:, :1] * X - each[:, 1:]
    mean, weights = residuals.mean(axis=0), 1 / scale**2
    bend = pairs * float(weights @ mean**2) / 2
    noise = float(np.sum(weights * (residuals - mean) ** 2)) / ((pairs - 1) * 2)
    lack = stats.f.sf(bend / noise, 2, (pairs - 1) * 2)
    assert lack > 0.05
    assert found.lack_of_fit_p == pytest.approx(lack)
    covariance = np.cov(each.T) / pairs
    assert (found.var_slope, found.var_intercept, found.covariance) == pytest.approx(
        (covariance[0, 0], covariance[1, 1], covariance[0, 1])
    )
    assert (found.df, found.pairs, found.lengths) == (pairs - 1, pairs, 4)
    assert found.slope_z == pytest.approx(slope / covariance[0, 0] ** 0.5)
    value, error = found.at(8000.0)
    assert value == pytest.approx(intercept + 8000 * slope)
    assert error == pytest.approx(
        math.sqrt(np.array([8000.0, 1.0]) @ covariance @ np.array([8000.0, 1.0]))
    )
    assert found.reach(0.9) == pytest.approx(stats.t.ppf(0.95, pairs - 1))


def test_a_bend_adds_its_own_error_and_takes_its_degrees_of_freedom() -> None:
    grid = _grid(8)
    bent = Grid(pairs=grid.pairs, lengths=X, values=grid.values + np.array([0.0, 0.4, 0.0, 0.0]))
    plain, found = fit(grid, np.ones(4)), fit(bent, np.ones(4))
    assert plain is not None
    assert found is not None
    assert (plain.df, found.df) == (7, 2)
    assert found.var_slope > plain.var_slope
    assert (found.lack_of_fit_p or 0.0) < 0.05


def test_two_pairs_have_the_error_of_their_residuals() -> None:
    grid = _grid(2)
    found = fit(grid, np.ones(4))
    assert found is not None
    each = np.array([np.polyfit(X, row, 1) for row in grid.values])
    middle = (grid.values - each[:, :1] * X - each[:, 1:]).mean(axis=0)
    assert found.df == 2
    assert found.var_slope == pytest.approx(
        float(middle @ middle) / 2 / float(np.sum((X - X.mean()) ** 2))
    )
    alone = fit(_grid(1), np.ones(4))
    assert alone is not None
    assert alone.lack_of_fit_p is None
    exact = fit(
        Grid(pairs=np.arange(3), lengths=X, values=np.tile(5 + 1e-3 * X, (3, 1))), np.ones(4)
    )
    assert exact is not None
    assert exact.slope == pytest.approx(1e-3)


def test_what_is_missing_costs_the_length_or_the_pair() -> None:
    grid = _grid(4)
    values = grid.values.copy()
    values[0, 3] = np.nan
    lost_pair = fit(Grid(pairs=grid.pairs, lengths=X, values=values), np.ones(4))
    assert lost_pair is not None
    assert (lost_pair.pairs, lost_pair.lengths) == (3, 4)
    values[1:, 3] = np.nan
    lost_length = fit(Grid(pairs=grid.pairs, lengths=X, values=values), np.ones(4))
    assert lost_length is not None
    assert (lost_length.pairs, lost_length.lengths) == (4, 3)
    wide = np.concatenate([X, 2 * X])
    holes = np.concatenate([grid.values, grid.values], axis=1)
    holes[np.arange(4), np.arange(4)] = np.nan  # no pair has all lengths
    diagonal = fit(Grid(pairs=grid.pairs, lengths=wide, values=holes), np.ones(8))
    assert diagonal is not None
    assert (diagonal.pairs, diagonal.lengths) == (4, 4)
    assert (
        fit(Grid(pairs=grid.pairs, lengths=X, values=np.full((4, 4), np.nan)), np.ones(4)) is None
    )


def test_lengths_within_two_percent_of_their_neighbour_are_one() -> None:
    index, centres = length_index(np.array([1000.0, 1019.0, 1041.0, 980.0, 2000.0]))
    assert index.tolist() == [0, 0, 1, 1, 2] or index.tolist() == [1, 1, 2, 0, 3]
    assert index.tolist() == [1, 1, 2, 0, 3]
    assert centres == pytest.approx([980.0, 1009.5, 1041.0, 2000.0])


def test_a_token_latency_line_says_its_intervals_and_its_bandwidth() -> None:
    grid = _grid(5)
    pair, tokens = np.repeat(np.arange(5), 4), np.tile(X, 5)
    found = itl_line(
        "a",
        users=2,
        pair=pair,
        batch_tokens=tokens,
        itl_ms=grid.values.ravel(),
        kv_bytes_per_token=100_000.0,
    )
    line = fit(grid, np.median(grid.values, axis=0))
    assert found is not None
    assert line is not None
    for estimate, value, variance in (
        (found.slope_ms_per_token, line.slope, line.var_slope),
        (found.intercept_ms, line.intercept, line.var_intercept),
    ):
        reach = stats.t.ppf(0.975, 4) * variance**0.5
        assert (estimate.value, estimate.low, estimate.high, estimate.n) == pytest.approx(
            (value, value - reach, value + reach, 5)
        )
    assert found.bandwidth_tb_s is not None
    assert found.bandwidth_tb_s.value == pytest.approx(100_000 * 1e3 / 1e12 / line.slope)
    assert (found.straight, found.users, found.range_tokens) == (True, 2, (1000.0, 64000.0))
    falling = itl_line(
        "a",
        users=1,
        pair=pair,
        batch_tokens=tokens,
        itl_ms=50 - grid.values.ravel(),
        kv_bytes_per_token=1e5,
    )
    assert falling is not None
    assert falling.bandwidth_tb_s is None
    none = np.zeros(0)
    assert (
        itl_line("a", users=1, pair=none.astype(np.int64), batch_tokens=none, itl_ms=none) is None
    )


def _line(
    intercept: float,
    slope: float,
    *,
    error: float = 0.5,
    slope_error: float = 0.02,
    covariance: float = -0.004,
) -> FittedLine:
    return FittedLine(
        intercept=intercept,
        slope=slope,
        var_intercept=error**2,
        var_slope=slope_error**2,
        covariance=covariance,
        df=9,
        pairs=10,
        lengths=5,
        lack_of_fit_p=None,
    )


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        (_line(10.0, -0.5), "interval"),
        (_line(-10.0, 0.5), "interval"),
        (_line(3.0, -0.04, covariance=0.0), "rays"),
        (_line(0.1, 0.001), "line"),
    ],
)
@pytest.mark.parametrize("level", [0.95, 0.97])
def test_at_the_ends_of_the_set_the_line_is_just_told_from_zero(
    line: FittedLine, shape: str, level: float
) -> None:
    found = fieller(line, level)
    assert found.shape == shape
    if shape == "line":
        return
    for end in (found.low, found.high):
        value, error = line.at(end)
        assert abs(value) == pytest.approx(line.reach(level) * error)
    inside = (found.low + found.high) / 2
    value, error = line.at(inside)
    assert (abs(value) < line.reach(level) * error) == (shape == "interval")


@pytest.mark.parametrize(
    ("line", "shape", "ahead"),
    [
        (_line(10.0, -0.5), "bounded", "above"),
        (_line(-10.0, 0.5), "bounded", "below"),
        (_line(10.0, 0.5), "none", "below"),  # crosses below zero
        (_line(-10.0, -0.5), "always", "above"),
        (_line(5.0, 0.0001), "none", "below"),
        (_line(-5.0, 0.0001), "always", "below"),
        (_line(0.1, 0.001), "unclear", "below"),
    ],
)
def test_a_set_is_told_over_the_lengths_that_were_tested(
    line: FittedLine, shape: str, ahead: str
) -> None:
    found = break_even_of_line("fp8", line, first=1.0, last=60.0, users=4.0, prior_tokens=7.0)
    assert (found.shape, found.ahead, found.pairs, found.prior_tokens) == (shape, ahead, 10, 7.0)
    assert found.slope_z == pytest.approx(line.slope / 0.02)
    if shape == "bounded":
        ends = fieller(line)
        assert (found.tokens, found.low, found.high) == pytest.approx((20.0, ends.low, ends.high))
        assert (found.own_tokens, found.own_low, found.own_high) == pytest.approx(
            (5.0, ends.low / 4, ends.high / 4)
        )
    else:
        assert (found.tokens, found.low, found.high) == (None, None, None)


def test_a_set_with_one_end_in_the_tested_range_is_open_at_the_other() -> None:
    line = _line(
        3.0, -0.04, covariance=0.0
    )  # slower at the shortest length, and nothing is known far out
    low, high = fieller(line).low, fieller(line).high
    assert low < 0 < high
    opened = break_even_of_line("fp8", line, first=1.0, last=2 * high, users=1.0, prior_tokens=None)
    assert (opened.shape, opened.high) == ("half-line", None)
    assert opened.low == pytest.approx(high)
    within = break_even_of_line("fp8", line, first=1.0, last=high / 2, users=1.0, prior_tokens=None)
    assert within.shape == "none"
    beyond = break_even_of_line(
        "fp8", line, first=2 * low, last=low / 2, users=1.0, prior_tokens=None
    )
    assert (beyond.shape, beyond.low) == ("half-line", None)
    assert beyond.high == pytest.approx(low)
    assert (
        break_even_of_line(
            "fp8", line, first=2 * low, last=2 * high, users=1.0, prior_tokens=None
        ).shape
        == "unclear"
    )
    # Undecided from below the shortest length on: at every length
    # that was tested, and batches have no fewer than no tokens.
    assert (
        break_even_of_line(
            "fp8", line, first=1.1 * high, last=2 * high, users=1.0, prior_tokens=None
        ).shape
        == "unclear"
    )


@pytest.mark.parametrize("starts", [1, 4])
def test_what_starts_and_wander_add_is_a_share_of_the_reference_line(starts: int) -> None:
    line, base = _line(10.0, -0.5), np.array([6.0, 0.04])
    found = with_starts(line, base, spread=0.015, starts=starts)
    # 2.2 is the 97.5% point of a normal whose own scale is
    # half-normal; wander of 2% with probability one half.
    unseen = (2 * (2.2 * 0.015) ** 2 + (1.96 * 0.01) ** 2) / starts / stats.t.ppf(0.975, 9) ** 2
    assert found.var_intercept == pytest.approx(0.25 + unseen * 36)
    assert found.var_slope == pytest.approx(0.0004 + unseen * 0.0016)
    assert found.covariance == pytest.approx(-0.004 + unseen * 0.24)
    assert with_starts(line, base, spread=0.0) == line


def _replayed(
    slope: float,
    intercept: float,
    *,
    pairs: int = 4,
    per: int = 8,
    span: float = 8.0,
    seed: int = 1,
) -> Calls:
    rng = np.random.default_rng(seed)
    n = pairs * per
    tokens = np.tile(np.linspace(10_000.0, 10_000.0 * span, per), pairs)
    tpot = (intercept + slope * tokens) * np.exp(rng.normal(0, 0.001, n))
    each = np.arange(n)
    return Calls(
        restart=each // per,
        pair=each // per,
        block=each // per,
        session=each,
        turn=np.zeros(n, dtype=np.int64),
        start_s=each.astype(np.float64),
        ok=np.ones(n, dtype=bool),
        ttft_ms=tpot,
        tpot_ms=tpot,
        turn_ms=tpot,
        prompt_tokens=tokens,
        output_tokens=tokens,
        batch_kv_tokens=tokens,
    )


def test_calls_of_a_replay_give_two_lines_a_pair_and_their_crossing() -> None:
    reference, arm = _replayed(4e-5, 6.0), _replayed(2e-5, 6.8, seed=2)
    found = break_even_from_calls("fp8", [reference], [arm], own_users=2.0)
    assert found is not None
    assert (found.shape, found.pairs) == ("bounded", 4)
    assert found.tokens == pytest.approx(40_000, rel=0.02)
    assert found.own_tokens == pytest.approx(20_000, rel=0.02)
    for too_few in (
        _replayed(4e-5, 6.0, per=7),
        _replayed(4e-5, 6.0, span=1.9),
        _replayed(4e-5, 6.0, pairs=2),
    ):
        assert break_even_from_calls("fp8", [too_few], [arm]) is None
    assert break_even_from_calls("fp8", [reference], []) is None
    assert break_even_from_calls("fp8", [], [arm]) is None
    assert (
        break_even_from_calls(
            "fp8", [_replayed(4e-5, 6.0, span=2.0)], [_replayed(2e-5, 6.8, span=2.0)]
        )
        is not None
    )


def test_three_lengths_can_bend_and_two_cannot() -> None:
    rng = np.random.default_rng(3)
    values = 5 + 4e-5 * X[:3] + np.array([0.0, 0.5, 0.0]) + rng.normal(0, 0.02, (5, 3))
    bent = fit(Grid(pairs=np.arange(5), lengths=X[:3], values=values), np.ones(3))
    assert bent is not None
    assert bent.lack_of_fit_p is not None
    assert bent.lack_of_fit_p < 0.001
    assert bent.df == 1
    assert fit(Grid(pairs=np.arange(5), lengths=X[:2], values=values[:, :2]), np.ones(2)) is None


@pytest.mark.parametrize("seed", range(24))
def test_a_replays_set_is_that_of_its_pairs_lines_over_the_batches_that_were_seen(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    pairs = int(rng.choice([3, 4, 6]))
    noise = float(rng.choice([0.0, 0.003, 0.02]))

    def side(slope: float, intercept: float, arm: int) -> Calls:
        calls = _replayed(slope, intercept, pairs=pairs, per=12, seed=100 * arm + seed)
        shift = np.exp(rng.normal(0, noise, pairs))[calls.pair]
        return replace(calls, tpot_ms=calls.tpot_ms * shift, restart=calls.pair // 2)

    reference, arm = (
        side(4e-5, 6.0, 0),
        side(4e-5 * rng.uniform(0.5, 1.02), rng.uniform(5.9, 7.5), 1),
    )
    each = {}
    for calls in (reference, arm):
        rows = [calls.pair == pair for pair in range(pairs)]
        assert calls.batch_kv_tokens is not None
        each[id(calls)] = np.array(
            [
                np.polyfit(
                    calls.batch_kv_tokens[row], calls.tpot_ms[row], 1, w=1 / calls.tpot_ms[row]
                )[::-1]
                for row in rows
            ]
        )
    by_pair = each[id(arm)] - each[id(reference)]
    covariance = np.cov(by_pair.T) / pairs
    intercept, slope = by_pair.mean(axis=0)
    fitted = FittedLine(
        intercept=intercept,
        slope=slope,
        var_intercept=covariance[0, 0],
        var_slope=covariance[1, 1],
        covariance=covariance[0, 1],
        df=pairs - 1,
        pairs=pairs,
        lengths=0,
        lack_of_fit_p=None,
    )
    starts = (pairs + 1) // 2
    widened = with_starts(fitted, each[id(reference)].mean(axis=0), spread=0.004, starts=starts)
    tokens = np.concatenate([reference.batch_kv_tokens, arm.batch_kv_tokens])
    first, last = np.quantile(tokens, [0.05, 0.95])
    expected = break_even_of_line(
        "fp8", widened, first=first, last=last, users=4.0, prior_tokens=9.0
    )
    found = break_even_from_calls(
        "fp8", [reference], [arm], spread=0.004, own_users=4.0, prior_tokens=9.0
    )
    assert found is not None
    assert (found.shape, found.ahead, found.pairs, found.prior_tokens) == (
        expected.shape,
        expected.ahead,
        pairs,
        9.0,
    )
    for name in ("tokens", "low", "high", "own_tokens", "own_low", "own_high", "slope_z"):
        end = getattr(expected, name)
        assert getattr(found, name) == (None if end is None else pytest.approx(end, rel=1e-5)), name


def test_a_length_that_half_of_the_pairs_lack_is_left_out() -> None:
    grid = _grid(4)
    values = grid.values.copy()
    values[:2, 3] = np.nan
    found = fit(Grid(pairs=grid.pairs, lengths=X, values=values), np.ones(4))
    assert found is not None
    assert (found.pairs, found.lengths) == (4, 3)


def test_arms_that_kept_their_machines_were_started_once_however_often_they_started() -> None:
    def width(*machines: Ints | None) -> float:
        sides = [
            replace(_replayed(slope, intercept, seed=seed), machine=machine)
            for slope, intercept, seed, machine in zip(
                (4e-5, 2e-5), (6.0, 6.8), (1, 2), machines, strict=True
            )
        ]
        found = break_even_from_calls("fp8", sides[:1], sides[1:], spread=0.01)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        return found.high - found.low

    first, second, half = (
        np.zeros(32, dtype=np.int64),
        np.ones(32, dtype=np.int64),
        (np.arange(32) // 16).astype(np.int64),
    )
    unknown, same, exchanged, kept = (
        width(None, None),
        width(first, first),
        width(half, 1 - half),
        width(first, second),
    )
    assert unknown == same == exchanged
    assert kept > 1.5 * unknown


@pytest.mark.parametrize(
    ("slope", "variance", "z"),
    [(-0.5, 0.0, -np.inf), (0.5, 0.0, np.inf), (0.5, 1.0, 0.5), (-3.0, 4.0, -1.5)],
)
def test_a_slope_is_so_many_standard_errors_from_none(
    slope: float, variance: float, z: float
) -> None:
    assert replace(_line(10.0, slope), var_slope=variance).slope_z == z
