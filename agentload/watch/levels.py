"""Tell whether the latest runs lie at another level than those before, when each run has noise of its own.

Values are log ratios to the reference run, turn by turn on the same bytes. Their interval within a run is narrow, yet two runs of the same
server differ by more: another start, other neighbours, another temperature. So the scatter from run to run decides. With few runs it is
not known; a prior with the weight of a few runs stands in and fades as history grows. Runs resemble the one before (AR(1)), which
makes a mean of neighbours worth less than its count. A bounded number of looks (the last one, two or three runs) shares the error rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scipy import special

NOISE: Final = 0.015  # run-to-run scatter of a served model before any was measured; cloud benchmarks see 1 to 2 %
PRIOR_RUNS: Final = 16  # weight of that guess: it counts as much as sixteen runs
LIKENESS: Final = 0.3  # correlation of neighbouring runs
LOOKS: Final = 3  # a shift is looked for in the last one, two and three runs
LEVEL: Final = 0.004  # one-sided, each look; simulated histories (tests/watch/test_levels.py) stay below 1 % of runs with a false alarm
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
    """Compare the mean of *latest* with that of *before*; *error* is the standard error of one value within its run."""
    before = before[-BASELINE:]
    n, k = len(before), len(latest)
    assert n, "a baseline has at least the reference run"
    centre = sum(before) / n
    scatter = (PRIOR_RUNS * noise**2 + sum((each - centre) ** 2 for each in before)) / (PRIOR_RUNS + n - 1)
    variance = max(scatter, error**2) * (_share(k) + _share(n))
    df = PRIOR_RUNS + n - 1
    value = sum(latest) / k - centre
    se = math.sqrt(variance)
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
    most = min(LOOKS, len(runs) - 1)
    return tuple(shift(runs[:-k], runs[-k:], error=error, noise=noise) for k in range(1, most + 1))


def is_shifted(found: Shift, *, smallest: float, series: int = 1) -> bool:
    """Say whether a shift is real and at least as large as what matters; as many *series* share the error rate."""
    return found.p < LEVEL / series and abs(found.value) >= smallest


def _share(n: int) -> float:
    """Return the variance of the mean of *n* neighbouring runs, in units of one run's."""
    pairs = sum((n - lag) * LIKENESS**lag for lag in range(1, n))
    return (n + 2 * pairs) / n**2
