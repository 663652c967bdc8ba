"""Closed forms say what scipy.stats says, which takes most of a second to import."""

import numpy as np
import pytest
from scipy import stats

from advisor.evidence import AccuracyBucket
from advisor.gates.no_trend import _p_of_correlation
from advisor.gates.steady import _welch
from advisor.rules.garbage_answers import _p_more
from advisor.statistics.accuracy import AnswerCounts, _most_lost, mcnemar, tango_z
from advisor.statistics.quantiles import binomial, binomial_quantile, wilson

TRIALS = (1, 2, 3, 5, 10, 37, 100, 299, 1000, 4321, 100_000)


@pytest.mark.parametrize("chance", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("level", [0.005, 0.025, 0.05, 0.95, 0.975])
def test_binomial_quantiles_are_the_same_whole_numbers(chance: float, level: float) -> None:
    found = [binomial_quantile(level, each, chance) for each in TRIALS]
    assert found == [int(stats.binom.ppf(level, each, chance)) for each in TRIALS]


@pytest.mark.parametrize("chance", [0.0, 0.003, 0.1, 0.5, 1.0])
def test_binomial_probabilities_are_the_same(chance: float) -> None:
    for trials in TRIALS:
        successes, probabilities = binomial(trials, chance)
        wanted = stats.binom.pmf(successes, trials, chance)
        assert probabilities == pytest.approx(wanted, abs=1e-12)
        assert wanted.sum() == pytest.approx(1.0, abs=1e-12)


def test_welchs_test_has_the_same_p_value() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.01, 0.1, 1.0, 10.0):
        for _ in range(20):
            first, last = rng.normal(size=4), rng.normal(0.5, scale, size=4)
            wanted = stats.ttest_ind(first, last, equal_var=False).pvalue
            assert _welch(first, last) == pytest.approx(wanted, rel=1e-12)


def test_welchs_test_of_samples_that_do_not_vary_has_the_same_p_value() -> None:
    assert _welch(np.ones(4), np.full(4, 2.0)) == 0.0
    assert np.isnan(_welch(np.ones(4), np.ones(4)))


def test_a_correlation_has_the_same_p_value() -> None:
    rng = np.random.default_rng(2)
    for size in (6, 7, 13, 40):
        place = np.log(1 + np.arange(size))
        for slope in (0.0, 0.2, -1.0):
            series = slope * place + rng.normal(scale=0.3, size=size)
            wanted = stats.pearsonr(place, series).pvalue
            assert _p_of_correlation(place, series) == pytest.approx(wanted, rel=1e-12)


def test_wilsons_interval_is_the_same() -> None:
    for trials in TRIALS:
        for successes in {0, trials // 3, trials // 2, trials}:
            test = stats.binomtest(successes, trials)
            wanted = test.proportion_ci(0.95, method="wilson")
            found = wilson(successes, trials, level=0.95)
            assert found == pytest.approx((wanted.low, wanted.high), abs=1e-14)


def test_mcnemars_test_has_the_same_p_value() -> None:
    for lost in range(12):
        for won in range(12):
            wanted = stats.binomtest(won, lost + won).pvalue if lost + won else 1.0
            found = mcnemar(reference_only=lost, arm_only=won)
            assert found == pytest.approx(wanted, rel=1e-12)


def bucket(items: int, garbage: int, reference_garbage: int) -> AccuracyBucket:
    return AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=1000.0,
        both=items,
        reference_only=0,
        arm_only=0,
        neither=0,
        garbage=garbage,
        reference_garbage=reference_garbage,
    )


def test_fishers_test_has_the_same_p_value() -> None:
    for items in (1, 12, 300, 2000):
        for mine in {0, 1, items // 3, items}:
            for theirs in {0, items // 4, items}:
                table = np.array([[mine, items - mine], [theirs, items - theirs]])
                wanted = stats.fisher_exact(table, alternative="greater").pvalue
                assert _p_more(bucket(items, mine, theirs)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("items", "margin"), [(40, 0.1), (400, 0.03), (1500, 0.01)])
def test_the_most_that_may_be_lost_is_the_last_that_passes(items: int, margin: float) -> None:
    enough = stats.norm.ppf(0.95)

    def passes(lost: int, changed: int) -> bool:
        found = AnswerCounts(reference_only=lost, arm_only=changed - lost, n=items)
        return tango_z(found, -margin) >= enough

    numbers = range(items // 20, items // 4)
    wanted = [
        max((lost for lost in range(changed + 1) if passes(lost, changed)), default=-1)
        for changed in numbers
    ]
    assert list(_most_lost(numbers, items, margin, level=0.05)) == wanted
