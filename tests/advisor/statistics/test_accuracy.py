from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from advisor.statistics import accuracy
from advisor.statistics.accuracy import AnswerCounts, counts
from advisor.statistics.planning import PLANNED_ANSWERS

COUNTS = st.integers(min_value=0, max_value=60)


def test_tango_gives_the_published_interval() -> None:
    found = accuracy.tango(
        AnswerCounts(arm_only=1, reference_only=7, n=21)
    )  # Fagerland, Lydersen & Laake 2014
    assert found.low == pytest.approx(-0.517, abs=5e-4)
    assert found.high == pytest.approx(-0.026, abs=5e-4)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_tango_holds_its_value_and_mirrors_when_the_arms_change_places(
    both: int, lost: int, won: int, neither: int
) -> None:
    if both + lost + won + neither == 0:
        return
    n = both + lost + won + neither
    there = accuracy.tango(AnswerCounts(reference_only=lost, arm_only=won, n=n))
    back = accuracy.tango(AnswerCounts(reference_only=won, arm_only=lost, n=n))
    assert there.low is not None
    assert there.high is not None
    assert -1 <= there.low <= there.value <= there.high <= 1
    assert back.low is not None
    assert back.high is not None
    assert [there.low, there.high] == pytest.approx([-back.high, -back.low], abs=1e-6)


@given(
    COUNTS,
    COUNTS,
    st.integers(min_value=1, max_value=400),
    st.floats(min_value=0.005, max_value=0.2),
)
def test_the_interval_clears_the_margin_exactly_when_the_test_does(
    lost: int, won: int, same: int, margin: float
) -> None:
    n = lost + won + same
    interval = accuracy.tango(AnswerCounts(reference_only=lost, arm_only=won, n=n))
    assert interval.low is not None
    assert interval.high is not None
    if abs(interval.low + margin) > 1e-6:
        assert (interval.low > -margin) == (
            accuracy.p_not_worse(
                AnswerCounts(reference_only=lost, arm_only=won, n=n), margin=margin
            )
            < 0.025
        )
    if (
        accuracy.p_worse(AnswerCounts(reference_only=lost, arm_only=won, n=n), margin=margin)
        < 0.025
    ):
        assert interval.high < -margin + 1e-6


@pytest.mark.parametrize("differ", [0.0301, 0.04, 0.05, 0.10, 0.20])
@pytest.mark.parametrize(
    "items", [30, 160, 300, *(pytest.param(n, marks=pytest.mark.slow) for n in (400, 680))]
)
def test_an_arm_that_loses_the_margin_is_seldom_called_worse_at_one_look(
    differ: float, items: int
) -> None:
    margin, wrong = 0.03, 0.0
    for count in range(items + 1):
        chance = stats.binom.pmf(count, items, differ)
        for lost in range(count + 1) if chance > 1e-9 else ():
            if (
                accuracy.p_worse(
                    AnswerCounts(reference_only=lost, arm_only=count - lost, n=items), margin=margin
                )
                <= PLANNED_ANSWERS
            ):
                wrong += chance * stats.binom.pmf(lost, count, (differ + margin) / 2 / differ)
    assert wrong <= 1.1 * PLANNED_ANSWERS


@pytest.mark.parametrize(
    ("n", "least", "most"), [(50, 0.95, 1.0), (100, 0.93, 0.99), (300, 0.93, 0.975)]
)
def test_tango_covers_the_true_difference_in_small_samples(
    n: int, least: float, most: float
) -> None:
    rng = np.random.default_rng(1)
    runs, covered = 1000, 0
    for lost, won, _ in rng.multinomial(n, [0.03, 0.01, 0.96], size=runs):
        found = accuracy.tango(AnswerCounts(reference_only=int(lost), arm_only=int(won), n=n))
        covered += (found.low or -1) <= -0.02 <= (found.high or 1)
    assert least <= covered / runs <= most


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (0, 5), (7, 1), (12, 12), (30, 18)])
def test_mcnemar_is_statsmodels_exact_one(lost: int, won: int) -> None:
    oracle = import_module("statsmodels.stats.contingency_tables")
    theirs = oracle.mcnemar([[5, lost], [won, 5]], exact=True).pvalue
    assert accuracy.mcnemar(reference_only=lost, arm_only=won) == pytest.approx(theirs)


def test_graded_scores_count_contexts_not_items() -> None:
    rng = np.random.default_rng(2)
    runs, covered = 500, 0
    clusters = np.repeat(np.arange(30), 10)
    for _ in range(runs):
        shared = rng.normal(0, 0.05, 30)[clusters]
        base = rng.random(300)
        found = accuracy.mean_difference(
            base, base - 0.02 + shared + rng.normal(0, 0.05, 300), clusters
        )
        assert found is not None
        low, high = found.interval()
        covered += low <= -0.02 <= high
    assert 0.92 <= covered / runs <= 0.98
    agreed = accuracy.mean_difference(np.ones(20), np.ones(20))
    assert agreed is not None
    assert agreed.se == 0.05  # as if one context in twenty had changed: agreement is not proof
    assert accuracy.mean_difference(np.ones(4), np.ones(4), np.array([0, 0, 1, 1])) is None


def _behind(*contexts: tuple[int, int, int]) -> AnswerCounts:
    """Count contexts behind each of which so many answers are lost, won and equal."""
    difference = np.concatenate([np.repeat([-1.0, 1.0, 0.0], each) for each in contexts])
    return counts(difference, np.repeat(np.arange(len(contexts)), [sum(each) for each in contexts]))


def test_answers_that_differ_together_count_for_less_the_more_of_them_are_seen() -> None:
    same, apart = (
        _behind(*[each] * differ, *[(0, 0, 4)] * (75 - differ))
        for each, differ in (((4, 0, 0), 20), ((1, 0, 3), 75))
    )
    assert same.effect > 3.4
    assert apart.effect < 1.2
    assert _behind(*[(0, 0, 4)] * 75).effect == pytest.approx(1.9)  # by what is assumed alone
    assert counts(np.zeros(100), np.arange(100)) == AnswerCounts(
        reference_only=0.0, arm_only=0.0, n=100
    )


def test_one_lost_answer_of_three_hundred_makes_no_arm_safer() -> None:
    tables = [_behind(*[(1, 0, 3)] * differ, *[(0, 0, 4)] * (75 - differ)) for differ in range(5)]
    lows = [accuracy.tango(each, level=1 - 2 * PLANNED_ANSWERS).low or 0.0 for each in tables]
    assert lows == sorted(lows, reverse=True)
    assert lows[0] == pytest.approx(-0.045, abs=0.005)
    assert all(low < -0.03 for low in lows)


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=60),
    st.data(),
)
def test_a_lost_answer_makes_no_arm_safer_and_an_equal_one_none_less_safe(
    each: int, drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    table = [
        (lost, min(won, each - lost))
        for lost, won in ((min(lost, each), won) for lost, won in drawn)
    ]
    contexts = [(lost, won, each - lost - won) for lost, won in table]
    place = data.draw(st.integers(0, len(contexts) - 1))
    lost, won, same = contexts[place]
    before = accuracy.p_not_worse(_behind(*contexts), margin=0.03)
    if same:
        worse = [*contexts[:place], (lost + 1, won, same - 1), *contexts[place + 1 :]]
        assert accuracy.p_not_worse(_behind(*worse), margin=0.03) >= min(before, 0.5) - 1e-12
    more = [*contexts, (0, 0, 1)]
    for _ in range(each):
        after = accuracy.p_not_worse(_behind(*more), margin=0.03)
        # Where most answers of two contexts are lost, the margin's
        # own score moves: 0.0007 at most in 40,000 random tables.
        assert after <= max(before + 1e-3, 0.5)
        before, more = after, [*contexts, (0, 0, more[-1][2] + 1)]


@pytest.mark.parametrize(("contexts", "each"), [(3, 4), (8, 4), (30, 1)])
def test_an_interval_of_answers_that_are_all_lost_lies_below_none(contexts: int, each: int) -> None:
    found = accuracy.tango(_behind(*[(each, 0, 0)] * contexts), level=1 - 2 * PLANNED_ANSWERS)
    assert (found.value, found.low) == (-1.0, -1.0)
    assert found.high is not None
    assert -1 < found.high < 0.0


def test_tango_covers_where_items_repeat() -> None:
    rng = np.random.default_rng(4)
    runs, covered, clusters = 400, 0, np.repeat(np.arange(80), 5)
    for _ in range(runs):
        tendency = rng.choice(
            [-1.0, 0.0, 1.0], size=80, p=[0.10, 0.86, 0.04]
        )  # an item turns wrong, stays, turns right
        found = accuracy.tango(
            counts(np.where(rng.random(400) < 0.8, tendency[clusters], 0.0), clusters)
        )
        covered += (found.low or -1) <= -0.048 <= (found.high or 1)
    assert 0.91 <= covered / runs <= 0.99


@pytest.mark.parametrize(
    ("lost", "won", "n", "difference"),
    [(7, 1, 21, -0.03), (12, 9, 300, -0.05), (0, 4, 60, 0.02), (30, 2, 90, -0.2)],
)
def test_a_score_has_the_moments_of_the_likeliest_shares_that_differ_by_so_much(
    lost: int, won: int, n: int, difference: float
) -> None:
    def unlikely(share: float) -> float:
        shares = np.array([share, share + difference, 1 - 2 * share - difference])
        return -float(
            np.sum(special.xlogy([lost, won, n - lost - won], np.maximum(shares, 1e-300)))
        )

    share = optimize.minimize_scalar(
        unlikely,
        bounds=(max(0.0, -difference), (1 - difference) / 2),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    values, weights = (
        np.array([-1.0, 1.0, 0.0]),
        np.array([share, share + difference, 1 - 2 * share - difference]),
    )
    moments = [n * float(weights @ (values - difference) ** power) for power in (2, 3)]
    assert accuracy._under(
        AnswerCounts(reference_only=lost, arm_only=won, n=n), difference
    ) == pytest.approx(moments, rel=1e-4)


def test_what_differs_together_widens_a_score_and_leaves_it_more_skewed() -> None:
    alone = AnswerCounts(reference_only=12, arm_only=9, n=300)
    together = AnswerCounts(reference_only=12, arm_only=9, n=300, together=21.0, df=80)
    (variance, third), (wider, more) = (accuracy._under(each, 0.01) for each in (alone, together))
    assert wider == pytest.approx(variance + 21)
    # Answers that differ in groups of as many: their cubes grow by the square of the variances.
    assert more == pytest.approx(third * (wider / variance) ** 2)
    assert third != 0


def test_weighted_answers_that_differ_together_are_counted_pair_by_pair() -> None:
    difference = np.array([-1.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, -1.0])
    clusters, weights = np.arange(8) // 2, np.array([3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0])
    found = counts(difference, clusters, weights)
    even = weights * 8 / weights.sum()
    unit = float(even @ even) / 8
    lost, won = even[difference < 0].sum() / unit, even[difference > 0].sum() / unit
    n = 8 / unit
    alike = (lost * (lost - 1) + won * (won - 1)) / (n * (n - 1))
    pairs = [(a, b) for a in range(8) for b in range(8) if a // 2 == b // 2]
    seen = sum(even[a] * even[b] for a, b in pairs if difference[a] * difference[b] > 0)
    chance = alike * sum(even[a] * even[b] for a, b in pairs if a != b)
    assert found.together == pytest.approx((seen - chance) / unit**2 - lost - won)
    assert found.together > 0


@pytest.mark.parametrize("level", [0.3, 0.5, 0.95, 0.999])
def test_an_interval_at_any_level_ends_where_the_score_does_or_at_all_of_the_answers(
    level: float,
) -> None:
    reach = float(stats.norm.ppf(0.5 + level / 2))
    for lost, won, n in ((10, 0, 10), (0, 10, 10), (3, 1, 40), (0, 0, 25), (60, 20, 300)):
        found = accuracy.tango(AnswerCounts(reference_only=lost, arm_only=won, n=n), level=level)
        for end, edge, side in ((found.low, -1.0, reach), (found.high, 1.0, -reach)):
            assert end is not None
            if end != edge:
                assert accuracy.tango_z(
                    AnswerCounts(reference_only=lost, arm_only=won, n=n), end
                ) == pytest.approx(side, abs=1e-6)
