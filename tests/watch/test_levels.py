"""Levels are told apart as often as promised, on simulated histories whose truth is known."""

from __future__ import annotations

import math
from random import Random

import pytest

from agentload.watch.alarms import Alarm, Rule, alarms
from agentload.watch.levels import LEVEL, is_shifted, looks, shift
from tests.watch.histories import history

NOISE = 0.015
LIKENESS = 0.3


def noisy(rng: Random, runs: int) -> list[float]:
    """Draw the levels of runs whose noise is AR(1)."""
    out = [rng.gauss(0, NOISE)]
    while len(out) < runs:
        out.append(LIKENESS * out[-1] + rng.gauss(0, NOISE * math.sqrt(1 - LIKENESS**2)))
    return out


def raised(values: list[float]) -> tuple[Alarm, ...]:
    """Fold the values of runs, the first being the reference."""
    return alarms(history(*(each - values[0] for each in values[1:])), Rule())


@pytest.mark.slow
def test_of_20_000_quiet_runs_at_most_1_percent_raise_an_alarm() -> None:
    rng = Random(8)
    runs, false = 0, 0
    for _ in range(350):
        false += len(raised(noisy(rng, 61)))
        runs += 60
    assert runs >= 20_000
    assert false / runs <= 0.01, f"{false} false alarms in {runs} runs"


@pytest.mark.slow
def test_a_slowdown_of_5_percent_is_alarmed_within_three_runs_in_90_percent_of_histories() -> None:
    rng = Random(9)
    for before in (10, 20, 30):
        found = 0
        for _ in range(400):
            values = noisy(rng, before + 3)
            late = [each + (math.log(1.05) if place >= before else 0) for place, each in enumerate(values)]
            told = raised(late)
            found += any(each.kind == "regression" and each.raised_ns >= history_stamp(before) for each in told)
        # With ten runs the scatter is not well known yet: 90 %, give or take what 400 histories can tell.
        assert found / 400 >= (0.9 if before >= 20 else 0.87), f"{found} of 400 with {before} runs before"


def history_stamp(place: int) -> int:
    return history(*[0.0] * place)[-1].ended_ns or 0


def test_a_shift_has_an_interval_that_narrows_with_history() -> None:
    few, many = shift([0.0], [0.08]), shift([0.0, 0.001, -0.001] * 8, [0.08])
    assert (few.runs, few.baseline, many.baseline) == (1, 1, 24)
    assert few.low < many.low < many.value < many.high < few.high
    assert math.isclose(few.value, math.expm1(0.08))


def test_a_run_that_is_uncertain_in_itself_is_no_shift() -> None:
    quiet = [0.0, 0.002, -0.002] * 8
    assert is_shifted(shift(quiet, [0.08]), smallest=0.03)
    assert not is_shifted(shift(quiet, [0.08], error=0.05), smallest=0.03)


def test_a_shift_below_what_matters_is_none_however_certain() -> None:
    assert not is_shifted(shift([0.0] * 30, [0.02] * 3, noise=0.0005), smallest=0.03)


def test_series_share_the_error_rate() -> None:
    found = shift([0.0] * 12, [0.04])
    assert LEVEL / 10 < found.p < LEVEL
    assert (is_shifted(found, smallest=0.03), is_shifted(found, smallest=0.03, series=10)) == (True, False)


def test_looks_never_take_the_last_run_of_the_baseline() -> None:
    assert [(each.runs, each.baseline) for each in looks([0.0], [0.1])] == [(1, 1)]
    assert [(each.runs, each.baseline) for each in looks([0.0, 0.0, 0.0], [0.1])] == [(1, 3), (2, 2), (3, 1)]
