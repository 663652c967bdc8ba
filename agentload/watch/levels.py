"""Tell whether the latest runs are at another level, and where a series changed its level.

Values are log ratios to the reference run, turn by turn on the same bytes. Their interval within a
run is narrow, yet two runs of the same server differ by more: another start, other neighbours,
another temperature. So the scatter from run to run decides. Few runs do not show the scatter; a
prior with the weight of a few runs takes its place and fades as history grows. Runs resemble the
one before (AR(1)), which makes neighbours worth less than their count, and the last run before a
change worth more than the others. A bounded number of looks (the last one, two or three runs)
shares the error rate.

Over a whole series, changes are found by E-divisive of Matteson and James (2014). The energy
distance between two neighbouring stretches is largest where one level ends and another begins.
A permutation test shows whether the largest distance is more than chance; the parts on either side
are then searched in turn. Values of AR(1) are not exchangeable: what each run adds of its own is
permuted, and the likeness is put back. Series of less than ten runs are not searched.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from agentload.model.record import Record

Floats: TypeAlias = NDArray[np.float64]

# run-to-run scatter of a served model before any was measured; cloud benchmarks see 1 to 2%
NOISE: Final = 0.015
PRIOR_RUNS: Final = 16  # weight of the prior scatter `NOISE`: it counts as much as sixteen runs
ENOUGH: Final = 5  # more runs than these may refute the prior
REFUTED: Final = 0.01
LIKENESS: Final = 0.3  # correlation of neighbouring runs
# One-sided, of the last one, two and three runs. What counts is to be sure within
# three runs, so the last look has most of the error rate. Set so that simulated
# histories (tests/watch/calibration.py) keep both promises with room to spare.
LEVELS: Final = (0.0015, 0.002, 0.005)
BASELINE: Final = 30  # older runs say little about today's scatter

FEWEST: Final = 10  # runs: with fewer, a permutation says little
SHORTEST: Final = 3  # runs of one level: fewer are a spike
SIGNIFICANT: Final = 0.005
DRAWS: Final = 2.5  # permutations, in units of what the smallest p that counts needs
WINDOW: Final = 120  # the latest runs: older changes were reported long ago
BATCH: Final = 200_000  # numbers in work at once: they fit a processor's cache


class Shift(Record):
    """State how far the last runs are from those before.

    The change is relative, with its 95% interval.
    """

    value: float
    low: float
    high: float
    p: float
    """One-sided probability that equal runs would be as far apart in this direction."""
    runs: int
    """Number of last runs that were averaged."""
    baseline: int


def shift(
    before: Sequence[float], latest: Sequence[float], *, error: float = 0.0, noise: float = NOISE
) -> Shift:
    """Estimate the step to *latest* by generalised least squares.

    *error* is the standard error of one value within its run.
    """
    baseline = before[-BASELINE:]
    n, k = len(baseline), len(latest)
    assert n, "a baseline has at least the reference run"
    own = _innovations([*baseline, *latest])
    level = _innovations([1.0] * (n + k))
    step = _innovations([0.0] * n + [1.0] * k)
    scatter, df = _scatter(own[:n], level[:n], noise)
    across = float(level @ step)
    together = float(level @ level)
    weight = float(step @ step) - across**2 / together
    value = (float(step @ own) - across * float(level @ own) / together) / weight
    se = math.sqrt(max(scatter, error**2) / weight)
    reach = float(scipy.special.stdtrit(df, 0.975)) * se
    return Shift(
        value=math.expm1(value),
        low=math.expm1(value - reach),
        high=math.expm1(value + reach),
        p=float(scipy.special.stdtr(df, -abs(value) / se)),
        runs=k,
        baseline=n,
    )


def _scatter(own: Floats, level: Floats, noise: float) -> tuple[float, int]:
    """Return the variance from run to run of the baseline, and its degrees of freedom.

    The prior *noise* has a weight of its own; where the runs themselves refute it, it has none.
    """
    centre = float(level @ own / (level @ level))
    rest = own - centre * level
    seen = float(rest @ rest)
    df = len(own) - 1
    is_refuted = df >= ENOUGH and scipy.special.chdtrc(df, seen / noise**2) < REFUTED
    prior_runs = 0 if is_refuted else PRIOR_RUNS
    df += prior_runs
    return (prior_runs * noise**2 + seen) / df, df


def looks(
    before: Sequence[float], latest: Sequence[float], *, error: float = 0.0, noise: float = NOISE
) -> tuple[Shift, ...]:
    """Return the shifts of the last one, two and three runs, as far as there are as many.

    Runs that are not looked at join the baseline.
    """
    runs = [*before, *latest]
    most = min(len(LEVELS), len(runs) - 1)
    counts = range(1, most + 1)
    return tuple(shift(runs[:-k], runs[-k:], error=error, noise=noise) for k in counts)


def is_shifted(found: Shift, *, smallest: float, series: int = 1) -> bool:
    """Tell whether a shift is real and at least as large as what matters.

    The *series* that are watched share the error rate.
    """
    level = LEVELS[found.runs - 1] / series
    return found.p < level and abs(found.value) >= smallest


def _innovations(values: Sequence[float]) -> Floats:
    """Return what each run adds to what it has from the run before.

    The units keep the variance of a run.
    """
    runs = np.asarray(values, dtype=np.float64)
    added = (runs[1:] - LIKENESS * runs[:-1]) / math.sqrt(1 - LIKENESS**2)
    return np.concatenate((runs[:1], added))


class ChangePoint(Record):
    """State from which run on a series has another level."""

    at: int
    """Place of the first value of the new level."""
    value: float
    """Relative change of the mean, from the stretch before to the stretch after."""
    p: float
    """Probability, by permutation, that runs of one level differ as much at some place."""


def change_points(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """Return the changes of level in the latest `WINDOW` log ratios, in order."""
    start = max(0, len(values) - WINDOW)
    if len(values) - start < FEWEST:
        return ()
    series = np.asarray(values[start:], dtype=np.float64)
    found = sorted(_split(series, 0, np.random.default_rng(0)))
    edges = [0, *(at for at, _ in found), len(series)]
    means = [float(series[first:end].mean()) for first, end in pairwise(edges)]
    return tuple(
        ChangePoint(at=start + at, value=math.expm1(after - before), p=p)
        for (at, p), (before, after) in zip(found, pairwise(means), strict=True)
    )


def strongest(values: Floats) -> tuple[int, float]:
    """Return where two neighbouring stretches differ most, and their scaled energy distance.

    The first stretch begins with the series.
    """
    grid = _energy(values[np.newaxis])[0]
    place = int(np.argmax(grid))
    return place // grid.shape[1] + SHORTEST, float(grid.flat[place])


def level_start(
    values: Sequence[float], *, smallest: float, level: float = SIGNIFICANT
) -> int | None:
    """Return where the latest level of a series began.

    None when the series has one level, or the latest is less than *smallest* away from what was
    before.
    """
    if len(values) < FEWEST:
        return None
    series = np.asarray(values, dtype=np.float64)
    at, strength = strongest(series)
    # The cheap question first: it spares most quiet histories the permutations.
    step = float(series[at:].mean() - series[:at].mean())
    if abs(step) < smallest:
        return None
    p = chance(series, strength, np.random.default_rng(0), level=level)
    return at if p < level else None


def chance(
    values: Floats, strength: float, rng: np.random.Generator, *, level: float = SIGNIFICANT
) -> float:
    """Return how often runs of one level have a place of at least this *strength*.

    The permutations are as many as *level* needs.
    """
    permutations = math.ceil(DRAWS / level) - 1
    of_first = math.sqrt(1 - LIKENESS**2)
    own = values - values.mean()
    own[1:] -= LIKENESS * own[:-1]  # numpy reads the whole right side before it writes
    own[0] *= of_first
    reached = done = 0
    size = max(1, BATCH // len(values) ** 2)
    # Besag and Clifford (1991): once too many have reached it, the others cannot change the answer.
    while done < permutations and (1 + reached) / (1 + permutations) < level:
        rows = min(size, permutations - done)
        done += rows
        drawn = rng.permuted(np.tile(own, (rows, 1)), axis=1)
        drawn[:, 0] /= of_first
        for place in range(1, len(values)):
            drawn[:, place] += LIKENESS * drawn[:, place - 1]
        strengths = _energy(drawn).max(axis=(1, 2))
        reached += int((strengths >= strength).sum())
    return (1 + reached) / (1 + done)


def _split(values: Floats, offset: int, rng: np.random.Generator) -> Iterator[tuple[int, float]]:
    """Yield where levels change in a stretch that begins at *offset*, each with its p-value."""
    if len(values) < 2 * SHORTEST:
        return
    at, strength = strongest(values)
    p = chance(values, strength, rng)
    if p < SIGNIFICANT:
        yield offset + at, p
        yield from _split(values[:at], offset, rng)
        yield from _split(values[at:], offset + at, rng)


def _energy(values: Floats) -> Floats:
    """Return, for each row, the scaled energy distance of each [0, first) to [first, last).

    -inf where one of them is too short.
    """
    n = values.shape[1]
    sums = np.abs(values[:, :, np.newaxis] - values[:, np.newaxis, :])
    np.cumsum(sums, axis=1, out=sums)
    np.cumsum(sums, axis=2, out=sums)
    # Of the pairs within a stretch from the start, each twice.
    whole = np.diagonal(sums, axis1=1, axis2=2)
    left = whole[:, SHORTEST - 1 : n - SHORTEST, np.newaxis]
    both = whole[:, np.newaxis, 2 * SHORTEST - 1 :]
    joint = sums[:, SHORTEST - 1 : n - SHORTEST, 2 * SHORTEST - 1 :]
    of_joint, of_left, of_both, bar = _weights(n)
    scaled: Floats = of_joint * joint
    scaled += of_left * left
    scaled += of_both * both
    scaled += bar
    return scaled


@lru_cache(maxsize=8)
def _weights(n: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the weights of the sums in the energy distance.

    The sums are over [0, first) x [0, last), [0, first) squared and [0, last) squared; the last
    weight is -inf where a stretch is too short.
    """
    before = np.arange(SHORTEST, n - SHORTEST + 1, dtype=np.float64)[:, np.newaxis]
    after = np.arange(2 * SHORTEST, n + 1) - before
    is_long = after >= SHORTEST
    after = np.where(is_long, after, SHORTEST)
    scale = before * after / (before + after)
    across = 2 * scale / (before * after)
    within = scale / (after * (after - 1))
    # What lies across is joint - left; what lies within
    # the second stretch is both + left - 2 joint.
    of_left = -across - scale / (before * (before - 1)) - within
    return across + 2 * within, of_left, -within, np.where(is_long, 0.0, -np.inf)
