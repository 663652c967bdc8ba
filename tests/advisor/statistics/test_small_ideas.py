from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from scipy import stats

from advisor.gates import steady
from advisor.statistics import accuracy, planning, quantiles
from advisor.statistics.accuracy import AnswerCounts
from advisor.statistics.spread import Spread
from tests.advisor.worlds import wandering


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_holm_is_statsmodels_holm(count: int) -> None:
    oracle = import_module("statsmodels.stats.multitest")
    for p_values in np.random.default_rng(count).random((5, count)) ** 3:
        assert planning.holm_adjusted(p_values.tolist()) == pytest.approx(
            oracle.multipletests(p_values, method="holm")[1]
        )


def test_holm_multiplies_by_the_claims_that_are_left_and_never_falls() -> None:
    assert planning.holm_adjusted([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert planning.holm_adjusted([]) == ()


def test_six_of_six_buckets_down_is_no_chance() -> None:
    found = accuracy.sign_test(
        [-0.4, -3.0, -2.0, -1.6, -1.3, -3.3]
    )  # Kimi-K2.5 on H200, vLLM blog 2026-04-22
    assert (found.down, found.up, found.p, found.all_down) == (6, 0, 0.03125, True)
    assert accuracy.sign_test([0.0, 0.0]).p == 1.0
    assert not accuracy.sign_test([-1.0, 1.0]).all_down


def test_a_loss_that_grows_with_length_has_a_slope() -> None:
    found = accuracy.slope_per_doubling(
        [4096, 8192, 16384, 32768], [-0.01, -0.021, -0.029, -0.04], [200] * 4
    )
    assert found is not None
    assert found[0] == pytest.approx(-0.01, abs=0.001)
    assert found[1] < 0.01
    assert accuracy.slope_per_doubling([4096, 8192], [0.0, 0.1], [200, 200]) is None
    assert accuracy.slope_per_doubling([4096, 8192, 16384], [-0.02] * 3, [200, 100, 10]) == (
        0.0,
        1.0,
    )


@pytest.mark.parametrize(
    ("q", "sessions"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)]
)
def test_a_quantile_needs_so_many_sessions(q: float, sessions: int) -> None:
    assert quantiles.least_sessions(q) == sessions
    values = np.random.default_rng(1).random(sessions)
    assert quantiles.quantile(values, np.arange(sessions), q, unit="ms") is not None
    assert quantiles.quantile(values[1:], np.arange(sessions - 1), q, unit="ms") is None


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_a_quantile_interval_covers_the_truth_although_calls_of_a_session_are_alike(
    q: float,
) -> None:
    rng = np.random.default_rng(2)
    sessions, turns, runs = 150, 10, 400
    clusters = np.repeat(np.arange(sessions), turns)
    spread = np.sqrt(1 + 0.5)
    truth = {0.5: 0.0, 0.95: 1.6449 * spread}[q]
    covered = 0
    for _ in range(runs):
        values = rng.normal(0, np.sqrt(0.5), sessions)[clusters] + rng.normal(size=clusters.size)
        found = quantiles.quantile(values, clusters, q, unit="ms")
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / runs <= 0.99


def test_what_never_ended_counts_as_longest() -> None:
    values, sessions = np.arange(1.0, 201.0), np.arange(200)
    died = np.where(values > 192, np.inf, values)
    found = quantiles.quantile(died, sessions, 0.95, unit="ms")
    assert found is not None
    assert (found.value, found.high) == (190.0, None)
    assert (
        quantiles.quantile(np.where(values > 188, np.inf, values), sessions, 0.95, unit="ms")
        is None
    )


def test_a_warm_up_is_cut_and_a_level_series_is_kept() -> None:
    rng = np.random.default_rng(3)
    noise = wandering(rng.normal(0, 0.02, 400), phi=0.3)
    cold = 1.0 + noise + np.concatenate([np.linspace(2, 0, 60), np.zeros(340)])
    found = steady.mser5(cold)
    assert found is not None
    assert (found.settled, 40 <= found.drop <= 90) == (True, True)
    level = steady.mser5(1.0 + noise)
    assert level is not None
    assert (level.settled, level.drop <= 100) == (True, True)
    assert steady.mser5(np.ones(100)) is None


def test_a_slow_drift_that_mser_misses_is_seen_in_thirds() -> None:
    rng = np.random.default_rng(4)
    found = steady.mser5(1.0 + np.linspace(0, 0.2, 600) + rng.normal(0, 0.05, 600))
    assert found is not None
    assert not found.settled


@pytest.mark.parametrize(
    ("items", "discordance", "level", "power"),
    [
        (1380, 0.10, 0.0125, 0.887),
        (690, 0.05, 0.0125, 0.853),
        (414, 0.03, 0.0125, 0.80),
        (1190, 0.10, 0.025, 0.90),
        # No flip at all passes from 163 on at the one level, from 125 on at the other.
        (162, 1e-12, 0.0125, 0.0),
        (163, 1e-12, 0.0125, 1.0),
        (124, 1e-12, 0.025, 0.0),
        (125, 1e-12, 0.025, 1.0),
    ],
)
def test_the_power_of_so_many_items_is_that_of_the_test_itself(
    items: int, discordance: float, level: float, power: float
) -> None:
    assert accuracy.power(items, discordance, 0.03, level=level) == pytest.approx(power, abs=0.01)


def test_the_power_is_the_share_of_drawn_answers_that_pass() -> None:
    rng, items, level = np.random.default_rng(11), 400, 0.025
    lost, won, _ = rng.multinomial(items, [0.015, 0.015, 0.97], size=3000).T
    drawn = (
        AnswerCounts(reference_only=down, arm_only=up, n=items)
        for down, up in zip(lost, won, strict=True)
    )
    passed = [accuracy.p_not_worse(each, margin=0.03) <= level for each in drawn]
    assert accuracy.power(items, 0.03, 0.03, level=level) == pytest.approx(
        np.mean(passed), abs=0.02
    )


@pytest.mark.parametrize("discordance", [0.0, 0.001, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("margin", [0.02, 0.05])
def test_the_planned_items_are_the_least_that_pass_in_nine_runs_of_ten(
    discordance: float, margin: float
) -> None:
    items = planning.items_needed(discordance, margin)
    assert accuracy.power(items, discordance, margin, level=planning.LEVEL) >= planning.POWER
    assert (
        accuracy.power(round(0.9 * items) - 1, discordance, margin, level=planning.LEVEL)
        < planning.POWER
    )


def test_a_tenth_of_flips_needs_about_1190_items() -> None:
    assert planning.items_needed(0.10, 0.03) == pytest.approx(1190, rel=0.01)


@pytest.mark.parametrize("deviation", [0.03, 0.06, 0.12])
def test_the_planned_pairs_settle_an_effect_of_twice_the_margin_in_nine_runs_of_ten(
    deviation: float,
) -> None:
    rng = np.random.default_rng(5)
    margin, runs = 0.03, 1500
    n = planning.units_needed(deviation, margin)
    draws = rng.normal(-2 * margin, deviation, size=(runs, n))
    settled = 0
    for row in draws:
        found = Spread(
            value=float(row.mean()),
            se=float(row.std(ddof=1)) / n**0.5,
            df=n - 1,
            units=n,
            unit_name="block pairs",
        )
        settled += found.p_below(-margin) <= planning.LEVEL / planning.FAMILY
    assert 0.86 <= settled / runs <= 0.96


def test_no_scatter_needs_the_least_and_endless_scatter_is_capped() -> None:
    assert planning.units_needed(0.0, 0.03) == 3
    assert planning.units_needed(50.0, 0.03) == 100_000


def test_the_first_look_costs_nothing_and_all_later_ones_together_half_a_percent() -> None:
    assert planning.look_level(1, 0.05) == 0.025
    later = [planning.look_level(look, 0.05) for look in range(2, 40)]
    assert later == sorted(later, reverse=True)
    assert later[0] == 0.0025
    assert sum(later) == pytest.approx(0.005, rel=1e-6)
    assert planning.look_level(3, 0.10) == 2 * planning.look_level(3, 0.05)


def test_twelve_planned_looks_err_in_one_run_of_forty() -> None:
    assert (planning.planned_level(0.05), planning.planned_level(0.10)) == (0.0037, 0.0074)
    rng, runs, sizes = (
        np.random.default_rng(7),
        3000,
        np.array([6, 8, 10, 13, 17, 22, 28, 36, 46, 59, 76, 98]),
    )
    values = rng.normal(-0.03, 0.032, (runs, sizes[-1]))  # at the margin itself
    sums, squares = values.cumsum(axis=1)[:, sizes - 1], (values**2).cumsum(axis=1)[:, sizes - 1]
    means = sums / sizes
    error = np.sqrt((squares - sizes * means**2) / (sizes - 1) / sizes)
    claimed = means + stats.t.isf(planning.planned_level(0.05), sizes - 1) * error < -0.03
    assert 0.015 <= float(claimed.any(axis=1).mean()) <= 0.033


def test_twelve_planned_looks_at_answers_err_in_one_run_of_forty() -> None:
    level = planning.answer_level(0.05, planned=True)
    assert (level, planning.answer_level(0.05, planned=False)) == (0.0045, 0.025)
    rng, runs, sizes = (
        np.random.default_rng(7),
        600,
        (120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550, 2100),
    )
    wrong = 0
    for _ in range(
        runs
    ):  # answers that differ in ten of a hundred, and are worse by the margin itself
        drawn = rng.choice([-1, 0, 1], p=[0.065, 0.9, 0.035], size=sizes[-1])
        lost, won = (drawn < 0).cumsum(), (drawn > 0).cumsum()
        shown = (
            accuracy.p_not_worse(
                AnswerCounts(
                    reference_only=float(lost[n - 1]), arm_only=float(won[n - 1]), n=float(n)
                ),
                margin=0.03,
            )
            <= level
            for n in sizes
        )
        wrong += any(shown)
    assert wrong / runs <= 0.033


def _tails(
    rng: np.random.Generator, times: float, *, pairs: int = 12, share: float = 1.0
) -> tuple[quantiles.Tail, ...]:
    """Draw blocks whose turns resemble each other, on both
    sides, the arm's slowest *share* being *times* as long.
    """
    blocks = np.repeat(np.arange(pairs), 100)
    common = rng.normal(0, 0.05, pairs)[blocks]
    reference, arm = (np.exp(common + rng.normal(0, 0.3, blocks.size)) for _ in range(2))
    arm = np.where(rng.random(blocks.size) < share, arm * times, arm)
    return quantiles.tails(reference, blocks, arm, blocks)[0]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.0, 1.1])
def test_a_tail_that_is_no_longer_than_that_is_rarely_called_longer(times: float) -> None:
    rng = np.random.default_rng(12)
    found = [[each.p_longer(1.1) <= 0.025 for each in _tails(rng, times)] for _ in range(400)]
    assert max(np.mean([each[-1] for each in found]), np.mean([each[0] for each in found])) <= 0.045


def test_a_tail_that_is_much_longer_is_found_and_bounded_from_below() -> None:
    rng = np.random.default_rng(13)
    found = [_tails(rng, 1.6)[-1] for _ in range(60)]
    assert np.mean([each.p_longer(1.1) <= 0.025 for each in found]) > 0.95
    assert np.mean([each.least(0.025) <= 1.6 for each in found]) > 0.94
    for each in found[:5]:
        assert each.p_longer(each.least(0.025)) == pytest.approx(0.025, abs=0.02)


def test_which_tails_are_known_depends_on_the_independent_turns() -> None:
    rng = np.random.default_rng(14)
    for turns, known in ((40, []), (100, [0.95]), (400, [0.99, 0.95])):
        values, blocks = rng.lognormal(0, 0.3, turns), np.arange(turns) % 20
        assert [each.q for each in quantiles.tails(values, blocks, values, blocks)[0]] == known
    # Turns of a block that are all slow together are hardly more than one.
    blocks = np.repeat(np.arange(20), 50)
    alike = np.exp(rng.normal(0, 1.0, 20)[blocks] + rng.normal(0, 0.01, blocks.size))
    assert quantiles.tails(alike, blocks, alike, blocks)[0] == ()
    assert quantiles.tails(np.zeros(0), np.zeros(0, dtype=np.int64), alike, blocks) == ((), 0.0)
