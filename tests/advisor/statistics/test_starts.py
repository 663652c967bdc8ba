from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from advisor.evidence import Floats
from advisor.statistics import starts
from advisor.statistics.spread import Spread
from advisor.statistics.starts import Pairs

SCALE = 0.0212  # 1.5% an arm


def _pairs(
    rng: np.random.Generator, *, n: int, k: int, pair: float = 0.02, start: float = 0.0
) -> Pairs:
    unit = np.arange(n) * k // n
    values = rng.normal(0.0, start, k)[unit] + rng.normal(0.0, pair, n)
    return Pairs(values=values, start=unit, other_start=unit)


def _width(found: Spread) -> float:
    low, high = found.interval()
    return high - low


def _brute(values: Floats, *, scale: float) -> tuple[float, float]:
    """Integrate one start's posterior with no wander by hand: sigma
    and tau on a fine grid, normals of one start in closed form.
    """
    sigma = np.geomspace(0.003, 0.15, 300)
    tau = scale * np.linspace(0.002, 4, 300)
    s, t = (each.ravel() for each in np.meshgrid(sigma, tau))
    n, mean, rest = values.size, values.mean(), float(((values - values.mean()) ** 2).sum())
    logs = -(n - 1) * np.log(s) - rest / (2 * s**2) - (t / scale) ** 2 / 2
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    se = np.sqrt(s**2 / n + t**2)
    return float(mean), float(np.sqrt(weight @ se**2))


@pytest.fixture
def no_wander(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    starts._prepared.cache_clear()
    monkeypatch.setattr(starts, "WANDER", np.zeros(1))
    monkeypatch.setattr(starts, "_WANDER_WEIGHT", np.ones(1))
    yield
    starts._prepared.cache_clear()


@pytest.mark.usefixtures("no_wander")
@pytest.mark.parametrize("n", [4, 10, 30])
def test_the_grid_is_the_integral_that_it_stands_for(n: int) -> None:
    pairs = _pairs(np.random.default_rng(n), n=n, k=1)
    found = starts.spread(pairs, scale=SCALE)
    value, se = _brute(pairs.values, scale=SCALE)
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.se == pytest.approx(se, rel=0.03)


@pytest.mark.usefixtures("no_wander")
def test_without_starts_or_wander_a_grid_is_about_as_wide_as_students_t() -> None:
    values = np.random.default_rng(3).normal(-0.05, 0.02, 10)
    alone = Pairs(
        values=values, start=np.zeros(10, dtype=np.int64), other_start=np.zeros(10, dtype=np.int64)
    )
    assert starts.spread(alone, scale=0.0).interval() == pytest.approx(
        tuple(stats.ttest_1samp(values, 0).confidence_interval(0.95)), abs=0.001
    )


def _by_matrices(
    pairs: Pairs, scale: float, draws: tuple[tuple[float, float], ...] = ()
) -> tuple[float, float]:
    """Integrate the grid by its definition, priors restated:
    the whole covariance of the pairs at each of its points.
    """
    n = pairs.values.size
    scatter = np.geomspace(0.003, 0.15, 18).tolist()
    while scatter[-1] * np.exp(0.17) < 4 * pairs.values.std():
        scatter.append(scatter[-1] * np.exp(0.17))
    wander = 0.02 * np.array([0.0, 0.35, 1.05, 1.75, 2.45])
    some = np.exp(-((wander[1:] / 0.02) ** 2) / 2)
    wander_weight = np.append(0.5, 0.5 * some / some.sum())
    start = np.arange(0.2, 3.6, 0.4)
    start_weight = np.exp(-(start**2) / 2)
    design = np.stack([np.ones(n), *pairs.covariates], axis=1)
    lag = np.abs(np.arange(n)[:, None] - np.arange(n))
    same = [(each[:, None] == each) / 2 for each in (pairs.start, pairs.other_start)]
    found = []
    for lasting, (at, w), (way, t), s in product(
        (3.0, 10.0, 40.0), enumerate(wander), enumerate(scale * start), scatter
    ):
        inverse = np.linalg.inv(s**2 * np.eye(n) + w**2 * np.exp(-lag / lasting) + t**2 * sum(same))
        covariance = np.linalg.inv(design.T @ inverse @ design)
        fitted = covariance @ design.T @ inverse @ pairs.values
        left = pairs.values - design @ fitted
        logs = 0.5 * (
            np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(covariance)[1] - left @ inverse @ left
        )
        logs += np.log(wander_weight[at] * start_weight[way])
        logs += sum(stats.norm.logpdf(value, 0.0, np.hypot(t, error)) for value, error in draws)
        found.append((logs, fitted[0], covariance[0, 0]))
    logs, centre, variance = np.array(found).T
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    value = float(weight @ centre)
    return value, float(np.sqrt(weight @ (variance + (centre - value) ** 2)))


@pytest.mark.parametrize(
    ("k", "other", "covariates"),
    [
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 1, 0), (2, 4, 0))),
        (3, 3, 1),
        (3, 5, 2),
    ],
)
def test_the_grid_is_the_normal_model_point_by_point(
    k: int, other: int, covariates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "_NEGLIGIBLE", 0.0)
    rng, n = np.random.default_rng(k), 8
    found = _pairs(rng, n=n, k=k, start=0.01)
    signs = tuple(
        each.astype(np.float64)
        for each in (np.where(np.arange(n) % 2, 1, -1), np.where(np.arange(n) % 4 < 2, 1, -1))
    )
    pairs = Pairs(
        values=found.values,
        start=found.start,
        other_start=np.arange(n) * other // n,
        covariates=signs[:covariates],
    )
    for _ in range(2):  # prepared, and from what is known of the design
        spread = starts.spread(pairs, scale=SCALE)
        assert (spread.value, spread.se) == pytest.approx(_by_matrices(pairs, SCALE), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [0.06, 0.2])
def test_the_grid_reaches_as_far_as_pairs_scatter_and_knows_what_starts_of_equal_servers_showed(
    pair: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "_NEGLIGIBLE", 0.0)
    pairs, draws = (
        _pairs(np.random.default_rng(14), n=7, k=2, pair=pair),
        ((0.03, 0.004), (-0.01, 0.01)),
    )
    for each in ((), draws):
        spread = starts.spread(pairs, scale=SCALE, draws=each)
        assert (spread.value, spread.se) == pytest.approx(
            _by_matrices(pairs, SCALE, each), rel=1e-9
        )


def test_what_is_known_of_a_design_serves_other_values_and_other_scales() -> None:
    first, second = (_pairs(np.random.default_rng(seed), n=7, k=2) for seed in (1, 2))
    alone = [
        starts.spread(each, scale=scale).interval()
        for each in (first, second)
        for scale in (SCALE, 2 * SCALE)
    ]
    starts._prepared.cache_clear()
    assert [
        starts.spread(each, scale=scale).interval()
        for each in (second, first)
        for scale in (2 * SCALE, SCALE)
    ] == alone[::-1]


def test_more_pairs_of_one_start_never_narrow_below_what_the_start_may_add() -> None:
    widths = [
        _width(starts.spread(_pairs(np.random.default_rng(1), n=n, k=1), scale=SCALE))
        for n in (6, 24, 96)
    ]
    assert widths[0] > widths[1] > widths[2] > 2 * 1.96 * 0.8 * SCALE


def test_eight_starts_are_judged_by_their_own_scatter_and_never_below_that_of_their_pairs() -> None:
    rng = np.random.default_rng(4)
    apart = starts.spread(_pairs(rng, n=24, k=8, start=0.05), scale=SCALE)
    assert (apart.unit_name, apart.units, apart.df) == ("starts", 8, 7)
    assert (
        apart.interval()
        == starts.spread(
            _pairs(np.random.default_rng(4), n=24, k=8, start=0.05), scale=9.0
        ).interval()
    )  # no prior
    alike = _pairs(rng, n=24, k=8)
    unit = alike.units
    flat = Pairs(
        values=alike.values - np.repeat(np.bincount(unit, weights=alike.values) / 3, 3),
        start=unit,
        other_start=unit,
    )
    assert starts.spread(flat, scale=SCALE).interval() == starts.inside(flat).interval()


@pytest.mark.parametrize(("n", "k"), [(12, 3), (16, 4), (16, 8), (12, 12)])
def test_an_interval_covers_whatever_the_starts_add(n: int, k: int) -> None:
    rng = np.random.default_rng(5)
    runs, covered = 200, 0
    for _ in range(runs):
        low, high = starts.spread(_pairs(rng, n=n, k=k, start=0.0245), scale=SCALE).interval()
        covered += low <= 0.0 <= high
    assert covered / runs >= 0.92


def test_t_over_starts_is_t_over_their_means() -> None:
    pairs = _pairs(np.random.default_rng(15), n=24, k=8, start=0.05)
    means = [pairs.values[pairs.start == each].mean() for each in range(8)]
    assert starts.start_means(pairs) == pytest.approx(means)
    assert starts.spread(pairs, scale=SCALE).interval() == pytest.approx(
        tuple(stats.ttest_1samp(means, 0).confidence_interval(0.95))
    )
    for count, unit in ((4, "block pairs"), (5, "starts")):
        few = Pairs(
            values=pairs.values[: 3 * count],
            start=pairs.start[: 3 * count],
            other_start=pairs.start[: 3 * count],
        )
        assert starts.spread(few, scale=SCALE).unit_name == unit


def test_scatter_of_pairs_and_of_starts_are_their_mean_squares_and_the_prior_counts_for_the_starts_that_are_missing() -> (
    None
):
    values = np.array([0.0, 0.02, 0.06, 0.10, -0.02, 0.0])
    pairs = Pairs(values=values, start=np.arange(6) // 2, other_start=np.arange(6) // 2)
    within = 2 * (0.01**2 + 0.02**2 + 0.01**2) / 3
    between = float(np.var([0.01, 0.08, -0.01], ddof=1)) - within / 2
    found, own = starts.scatter(pairs, scale=0.03), starts.scatter(pairs, scale=0.03, worth=0)
    assert (found.pair, own.pair) == pytest.approx((within**0.5, within**0.5))
    assert found.start == pytest.approx(((5 * 0.03**2 + 2 * between) / 7) ** 0.5)
    assert own.start == pytest.approx(between**0.5)
    order = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    evened = values - order * float(np.polyfit(order, values, 1)[0])
    left = evened - np.repeat([each.mean() for each in np.split(evened, 3)], 2)
    with_order = Pairs(
        values=values, start=pairs.start, other_start=pairs.start, covariates=(order,)
    )
    assert starts.scatter(with_order, scale=0.03).pair == pytest.approx(
        (float(left @ left) / 2) ** 0.5
    )
    alone = Pairs(values=values, start=np.arange(6), other_start=np.arange(6))
    assert starts.scatter(alone, scale=0.03).pair == pytest.approx(float(values.std(ddof=1)))
    draws = starts.start_draws(pairs)
    assert [mean for mean, _ in draws] == pytest.approx([0.01, 0.08, -0.01])
    assert [error for _, error in draws] == pytest.approx([(within / 2) ** 0.5] * 3)
    once = np.zeros(2, dtype=np.int64)
    (alone_drawn,) = starts.start_draws(
        Pairs(values=np.array([0.0, 0.04]), start=once, other_start=once)
    )
    assert alone_drawn == pytest.approx((0.02, 0.02))


def test_servers_started_apart_share_half_of_what_a_pair_of_starts_adds() -> None:
    quiet = np.random.default_rng(6).normal(0.0, 0.004, 12)
    once, halves = np.zeros(12, dtype=np.int64), np.arange(12) // 6
    both, one, none = (
        starts.spread(Pairs(values=quiet, start=left, other_start=right), scale=SCALE).se
        for left, right in ((once, once), (once, halves), (halves, halves))
    )
    assert none < one < both
    columns = starts._shared(once, halves)
    assert np.allclose(columns @ columns.T, 0.5 + 0.5 * (halves[:, None] == halves))


def test_pairs_that_share_either_server_are_one_unit() -> None:
    pairs = Pairs(
        values=np.zeros(5), start=np.array([0, 0, 1, 1, 2]), other_start=np.array([5, 6, 6, 7, 9])
    )
    assert (pairs.starts, pairs.units.tolist()) == (2, [0, 0, 0, 0, 1])


def test_a_control_across_starts_informs_the_width_and_never_the_value() -> None:
    pairs = _pairs(np.random.default_rng(7), n=12, k=1)
    alone, calm, wild = (
        starts.spread(pairs, scale=SCALE, draws=draws)
        for draws in ((), ((0.0, 0.002),) * 4, ((0.06, 0.002),) * 4)
    )
    assert _width(calm) < _width(alone) < _width(wild)
    assert wild.value == pytest.approx(alone.value, abs=0.002)
    (draw,) = starts.start_draws(pairs)
    assert draw == pytest.approx((pairs.values.mean(), pairs.values.std(ddof=1) / 12**0.5))


def test_order_is_taken_out_on_the_grid_and_over_starts() -> None:
    for k in (1, 12):
        pairs = _pairs(np.random.default_rng(8), n=12, k=k)
        order = np.where(np.arange(12) % 4 < 2, 1.0, -1.0)
        shifted = Pairs(
            values=pairs.values + 0.2 * order,
            start=pairs.start,
            other_start=pairs.other_start,
            covariates=(order,),
        )
        plain = Pairs(
            values=pairs.values,
            start=pairs.start,
            other_start=pairs.other_start,
            covariates=(order,),
        )
        assert starts.spread(shifted, scale=SCALE).value == pytest.approx(
            starts.spread(plain, scale=SCALE).value, abs=0.01
        )
        assert _width(starts.spread(shifted, scale=SCALE)) == pytest.approx(
            _width(starts.spread(plain, scale=SCALE)), rel=0.2
        )


@pytest.mark.parametrize("pair", [0.0, 0.5])
def test_pairs_without_scatter_and_pairs_beyond_the_grid_have_an_interval(pair: float) -> None:
    found = starts.spread(_pairs(np.random.default_rng(9), n=6, k=1, pair=pair), scale=SCALE)
    low, high = found.interval()
    assert low < found.value < high
    assert (high - low > 0.5) == (pair > 0.1)


def test_the_tails_of_a_mixture_are_those_of_its_normals() -> None:
    weight, centre, se = np.array([0.7, 0.3]), np.array([0.0, 0.01]), np.array([0.01, 0.04])
    found = Spread.mixed(weight, centre, se, units=5, unit_name="block pairs")
    low, high = found.interval()
    assert found.p_below(high) == pytest.approx(0.025, abs=1e-6)
    assert found.p_above(low) == pytest.approx(0.025, abs=1e-6)
    draws = np.random.default_rng(10).normal(
        *np.stack([centre, se])[:, np.random.default_rng(11).choice(2, 400_000, p=weight)]
    )
    assert (low, high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.001)
    moved = found.shifted(0.02, 0.03)
    assert moved.value == pytest.approx(found.value - 0.02)
    assert moved.se == pytest.approx(np.hypot(found.se, 0.03))


def test_a_plan_separates_what_pairs_and_what_starts_scatter() -> None:
    rng = np.random.default_rng(12)
    found = [starts.scatter(_pairs(rng, n=48, k=12, start=0.04), scale=SCALE) for _ in range(40)]
    assert np.mean([each.pair for each in found]) == pytest.approx(0.02, rel=0.1)
    assert np.mean([each.start for each in found]) == pytest.approx(0.04, rel=0.1)
    once = starts.scatter(_pairs(rng, n=48, k=1), scale=SCALE)
    assert once.start == pytest.approx(SCALE)
    each_pair = starts.scatter(_pairs(rng, n=48, k=48, start=0.03), scale=SCALE)
    assert each_pair.start == 0.0
    assert each_pair.pair == pytest.approx(0.036, rel=0.35)


@pytest.mark.parametrize(("count", "k"), [(4, 1), (8, 1), (4, 4), (7, 7)])
def test_many_upper_ends_at_once_are_those_of_each_interval(count: int, k: int) -> None:
    values = 0.05 * np.random.default_rng(2).standard_normal((count, 6)) - 0.1
    start = np.arange(count) * k // count
    order = (np.resize([1.0, -1.0, -1.0, 1.0], count),) if count >= 6 else ()
    pairs = Pairs(values=values[:, 0], start=start, other_start=start, covariates=order)
    found = starts.highest(pairs, values, scale=0.02, level=0.017)
    alone = [
        starts.spread(replace(pairs, values=column), scale=0.02).interval(1 - 2 * 0.017)[1]
        for column in values.T
    ]
    assert found == pytest.approx(alone, abs=3e-4)


def test_what_starts_add_lies_below_a_bound_as_their_prior_says() -> None:
    bounds = np.array([-0.02, 0.0, 0.02])
    low, middle, high = starts.below(bounds, scale=0.02)
    assert (middle, low + high) == (pytest.approx(0.5), pytest.approx(1.0))
    assert starts.below(bounds, scale=0.0).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("missing", [None, 0, 1, 4, 9])
def test_pairs_that_take_turns_on_starts_do_so_whichever_pair_is_missing(
    missing: int | None,
) -> None:
    kept = np.array([pair for pair in range(20) if pair != missing])
    taken = Pairs(values=np.zeros(kept.size), start=kept % 5, other_start=kept % 5)
    left = Pairs(values=np.zeros(kept.size), start=kept // 4, other_start=kept // 4)
    own = Pairs(
        values=np.zeros(kept.size), start=np.arange(kept.size), other_start=np.arange(kept.size)
    )
    assert (starts.in_turn(taken), starts.in_turn(left), starts.in_turn(own)) == (5, None, None)
