from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar  # type: ignore[import-untyped]  # ships no types

from advisor.statistics import accuracy

COUNTS = st.integers(min_value=0, max_value=60)


def test_tango_gives_the_published_interval() -> None:
    found = accuracy.tango(both=1, arm_only=1, reference_only=7, neither=12)  # Fagerland, Lydersen & Laake 2014
    assert found.low == pytest.approx(-0.517, abs=5e-4)
    assert found.high == pytest.approx(-0.026, abs=5e-4)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_tango_holds_its_value_and_mirrors_when_the_arms_change_places(both: int, lost: int, won: int, neither: int) -> None:
    if both + lost + won + neither == 0:
        return
    there = accuracy.tango(both=both, reference_only=lost, arm_only=won, neither=neither)
    back = accuracy.tango(both=both, reference_only=won, arm_only=lost, neither=neither)
    assert there.low is not None
    assert there.high is not None
    assert -1 <= there.low <= there.value <= there.high <= 1
    assert back.low is not None
    assert back.high is not None
    assert [there.low, there.high] == pytest.approx([-back.high, -back.low], abs=1e-6)


@given(COUNTS, COUNTS, st.integers(min_value=1, max_value=400), st.floats(min_value=0.005, max_value=0.2))
def test_the_interval_clears_the_margin_exactly_when_the_test_does(lost: int, won: int, same: int, margin: float) -> None:
    n = lost + won + same
    interval = accuracy.tango(both=same, reference_only=lost, arm_only=won, neither=0)
    assert interval.low is not None
    assert interval.high is not None
    if abs(interval.low + margin) > 1e-6:
        assert (interval.low > -margin) == (accuracy.p_not_worse(reference_only=lost, arm_only=won, n=n, margin=margin) < 0.025)
    if abs(interval.high + margin) > 1e-6:
        assert (interval.high < -margin) == (accuracy.p_worse(reference_only=lost, arm_only=won, n=n, margin=margin) < 0.025)


@pytest.mark.parametrize(("n", "least", "most"), [(50, 0.95, 1.0), (100, 0.93, 0.99), (300, 0.93, 0.975)])
def test_tango_covers_the_true_difference_in_small_samples(n: int, least: float, most: float) -> None:
    rng = np.random.default_rng(1)
    runs, covered = 1000, 0
    for lost, won, same in rng.multinomial(n, [0.03, 0.01, 0.96], size=runs):
        found = accuracy.tango(both=int(same), reference_only=int(lost), arm_only=int(won), neither=0)
        covered += (found.low or -1) <= -0.02 <= (found.high or 1)
    assert least <= covered / runs <= most


@given(COUNTS, COUNTS)
def test_mcnemar_is_statsmodels_exact_one(lost: int, won: int) -> None:
    theirs = statsmodels_mcnemar([[5, lost], [won, 5]], exact=True).pvalue
    assert accuracy.mcnemar(reference_only=lost, arm_only=won) == pytest.approx(theirs)


def test_graded_scores_count_contexts_not_items() -> None:
    rng = np.random.default_rng(2)
    runs, covered = 500, 0
    clusters = np.repeat(np.arange(30), 10)
    for _ in range(runs):
        shared = rng.normal(0, 0.05, 30)[clusters]
        base = rng.random(300)
        found = accuracy.graded(base, base - 0.02 + shared + rng.normal(0, 0.05, 300), clusters)
        assert found is not None
        low, high = found.interval()
        covered += low <= -0.02 <= high
    assert 0.92 <= covered / runs <= 0.98
    assert accuracy.graded(np.ones(4), np.ones(4), np.array([0, 0, 1, 1])) is None
