"""Tell whether the latest runs lie at another level than those before, when each run has noise of its own.

Values are log ratios to the reference run, turn by turn on the same bytes. Their interval within a run is narrow, yet two runs of the same
server differ by more: another start, other neighbours, another temperature. So the scatter from run to run decides. With few runs it is
not known; a prior with the weight of a few runs stands in and fades as history grows. Runs resemble the one before (AR(1)), which makes
neighbours worth less than their count, and the last run before a change worth more than the others. A bounded number of looks (the last
one, two or three runs) shares the error rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from scipy import special

NOISE: Final = 0.015  # run-to-run scatter of a served model before any was measured; cloud benchmarks see 1 to 2 %
PRIOR_RUNS: Final = 16  # weight of that guess: it counts as much as sixteen runs
ENOUGH: Final = 5  # runs that may refute it
REFUTED: Final = 0.01
LIKENESS: Final = 0.3  # correlation of neighbouring runs
# One-sided, of the last one, two and three runs. What counts is to be sure within three, so the last look has most of the error rate. Set
# so that simulated histories (tests/watch/calibration.py) keep both promises with room to spare.
LEVELS: Final = (0.0015, 0.002, 0.005)
BASELINE: Final = 30  # older runs say little about today's scatter


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """State how far the last runs lie from those before, as a relative change with its 95 % interval."""

    value: float
    low: float
    high: float
    p: float
    """One-sided: that equal runs would lie as far apart in this direction."""
    runs: int
    """How many of the last runs were averaged."""
    baseline: int


def shift(before: Sequence[float], latest: Sequence[float], *, error: float = 0.0, noise: float = NOISE) -> Shift:
    """Estimate the step to *latest* by generalised least squares; *error* is the standard error of one value within its run."""
    before = before[-BASELINE:]
    n, k = len(before), len(latest)
    assert n, "a baseline has at least the reference run"
    own = _own([*before, *latest])
    level = _own([1.0] * (n + k))
    step = _own([0.0] * n + [1.0] * k)
    centre = _dot(level[:n], own[:n]) / _dot(level[:n], level[:n])
    rest = [each - centre * share for each, share in zip(own[:n], level[:n], strict=True)]
    seen = _dot(rest, rest)
    # A guess that the runs themselves refute counts for nothing.
    weight_of_guess = 0 if n > ENOUGH and special.chdtrc(n - 1, seen / noise**2) < REFUTED else PRIOR_RUNS
    df = weight_of_guess + n - 1
    scatter = (weight_of_guess * noise**2 + seen) / df
    across, together = _dot(level, step), _dot(level, level)
    weight = _dot(step, step) - across**2 / together
    value = (_dot(step, own) - across * _dot(level, own) / together) / weight
    se = math.sqrt(max(scatter, error**2) / weight)
    reach = float(special.stdtrit(df, 0.975)) * se
    return Shift(
        value=math.expm1(value),
        low=math.expm1(value - reach),
        high=math.expm1(value + reach),
        p=float(special.stdtr(df, -abs(value) / se)),
        runs=k,
        baseline=n,
    )


def looks(before: Sequence[float], latest: Sequence[float], *, error: float = 0.0, noise: float = NOISE) -> tuple[Shift, ...]:
    """Return the shift of the last one, two and three runs, as far as there are so many; runs that are not looked at join the baseline."""
    runs = [*before, *latest]
    most = min(len(LEVELS), len(runs) - 1)
    return tuple(shift(runs[:-k], runs[-k:], error=error, noise=noise) for k in range(1, most + 1))


def is_shifted(found: Shift, *, smallest: float, series: int = 1) -> bool:
    """Say whether a shift is real and at least as large as what matters; as many *series* share the error rate."""
    return found.p < LEVELS[found.runs - 1] / series and abs(found.value) >= smallest


def _own(values: Sequence[float]) -> list[float]:
    """Return what each run adds to what it has from the one before, in units that keep a run's variance."""
    scale = math.sqrt(1 - LIKENESS**2)
    return [values[0], *((each - LIKENESS * last) / scale for last, each in pairwise(values))]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(left * right for left, right in zip(one, other, strict=True))
