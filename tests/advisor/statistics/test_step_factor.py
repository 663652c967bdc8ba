"""The factor on a twin's step times that trials ask for, and trials that ask for none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from advisor.loads import FACTORS
from advisor.statistics.step_factor import ReplayedTrial, StepFactor, step_factors

SLOPE = 12.0
LOADS = (0.0, 0.18)
"""Logs of the loads of a draw, relative to what the twin carries in a long run."""


def share(beyond: float) -> float:
    """Return the share of turns that hold, 95% at the limit."""
    return 1 / (1 + math.exp(SLOPE * beyond - math.log(19)))


def trials(
    draws: int, *, factor: float, tilt: float = 0.0, rng: np.random.Generator | None = None
) -> Iterator[ReplayedTrial]:
    """Yield trials of an arm whose steps take *factor* times as long as its twin's."""
    for _ in range(draws):
        for beyond in LOADS:
            seen = share(beyond * (1 + tilt) + math.log(factor))
            if rng is not None:
                seen = rng.binomial(60, rng.beta(20 * seen, 20 * (1 - seen))) / 60
            expected = tuple(share(beyond + math.log(each)) for each in FACTORS)
            yield ReplayedTrial(log_load=beyond, turns=60, share=seen, expected=expected)


@pytest.mark.parametrize("factor", [0.93, 1.0, 1.08])
def test_trials_ask_for_the_step_times_that_made_them(factor: float) -> None:
    found = step_factors({"a": list(trials(12, factor=factor))})
    assert found is not None
    assert found["a"].log == pytest.approx(math.log(factor), abs=0.015)
    assert found["a"].freedom == 22


def test_the_interval_covers_the_factor_where_turns_hold_together_and_the_slope_is_off() -> None:
    covered = told = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        tilt = rng.uniform(-0.25, 0.25)
        found = step_factors({"a": list(trials(6, factor=1.04, tilt=tilt, rng=rng))})
        if found is not None:
            told += 1
            covered += abs(found["a"].log - math.log(1.04)) <= found["a"].half_width(0.95)
    assert told >= 50
    assert covered >= 0.9 * told


@pytest.mark.parametrize(("factor", "tilt"), [(1.2, 0.0), (0.82, 0.0), (1.0, 0.8), (1.08, -0.8)])
def test_trials_that_step_times_do_not_explain_have_no_factor(factor: float, tilt: float) -> None:
    right = list(trials(12, factor=1.0))
    other = list(trials(12, factor=factor, tilt=tilt))
    assert step_factors({"a": right}) is not None
    assert step_factors({"a": right, "b": other}) is None


def test_turns_that_hold_together_widen_the_interval_and_no_agreement_narrows_it() -> None:
    def error(*, spread: float) -> float:
        own = [
            ReplayedTrial(
                log_load=each.log_load,
                turns=each.turns,
                share=min(1.0, max(0.0, each.share + spread * (-1) ** (number // 2))),
                expected=each.expected,
            )
            for number, each in enumerate(trials(8, factor=1.0))
        ]
        found = step_factors({"a": own})
        assert found is not None
        return found["a"].error

    assert error(spread=0.12) > 1.2 * error(spread=0.0)
    assert error(spread=0.05) > 1.1 * error(spread=0.0)
    assert error(spread=0.02) == pytest.approx(error(spread=0.0), rel=0.05)


def test_a_cliff_where_the_twin_has_a_slope_is_explained_by_no_step_times() -> None:
    cliff = [
        replace(each, share=0.98 if number % 4 else 0.3)
        for number, each in enumerate(trials(12, factor=1.0))
    ]
    assert step_factors({"a": cliff}) is None


def test_an_interval_is_that_of_t_with_few_degrees_of_freedom() -> None:
    found = StepFactor(log=0.0, error=0.1, freedom=4, tilt=0.0, distance_asked=0.0)
    assert found.half_width(0.95) == pytest.approx(0.27764, abs=1e-4)


@pytest.mark.parametrize(
    ("factor", "turns", "is_believed"), [(1.1, 60, True), (0.9, 20, True), (0.8, 20, False)]
)
def test_a_factor_is_judged_by_what_trials_ask_for_before_it_is_drawn_to_what_twins_miss(
    factor: float, turns: int, *, is_believed: bool
) -> None:
    own = [replace(each, turns=turns) for each in trials(6, factor=factor)]
    assert (step_factors({"a": own}) is not None) == is_believed


def test_few_turns_are_drawn_towards_what_twins_usually_miss() -> None:
    logs = []
    for turns in (10, 60, 2000):
        own = [replace(each, turns=turns) for each in trials(3, factor=1.1)]
        found = step_factors({"a": own})
        assert found is not None
        logs.append(found["a"].log)
    assert 0 < logs[0] < logs[1] < logs[2]
    assert logs[2] == pytest.approx(math.log(1.1), abs=0.01)
