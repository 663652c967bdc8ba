"""Derive the level of a look where servers were started once: `python -m tests.advisor.one_start [--draws 2000]`.

What a start adds is drawn once, so looks at more pairs of it repeat one error more than they add to it. Everything is drawn from the prior
that the estimator integrates over: then one look errs as often as its level says, and only the looks in between are simulated. Printed
are, by what pairs scatter by and by level, the shares of sequences of which some look excludes the truth on one side.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from advisor.statistics.planning import ONE_START_LEVEL, PLANNED_LEVEL
from advisor.statistics.starts import LASTING, WANDER, Pairs, spread
from agentload.decision.sequence import PAIRS, STARTED_ONCE

LOOKS = tuple(each for each in PAIRS if each <= STARTED_ONCE)
SCATTER = (0.01, 0.02, 0.036, 0.06)
SCALE = math.sqrt(2) * 0.015
LEVELS = (PLANNED_LEVEL, 0.01, 0.0135, ONE_START_LEVEL, 0.02, 0.025)


def drawn(rng: np.random.Generator, scatter: float, *, scale: float = SCALE) -> np.ndarray:
    """Draw the log ratios of as many pairs as are looked at: no effect, one start, and a wander in one of two runs."""
    start = abs(rng.normal(0.0, scale)) * rng.standard_normal()
    values = start + scatter * rng.standard_normal(LOOKS[-1])
    if rng.random() < 0.5:
        size, lasting, place = abs(rng.normal(0.0, WANDER[-1] / 2.45)), rng.choice(LASTING), np.arange(LOOKS[-1])
        correlated = np.exp(-np.abs(place[:, None] - place) / lasting)
        values = values + size * np.linalg.cholesky(correlated) @ rng.standard_normal(LOOKS[-1])
    return np.asarray(values)


def least_p(values: np.ndarray, *, looks: tuple[int, ...] = LOOKS, scale: float = SCALE) -> float:
    """Return the least p-value that a look has against the truth, one-sided."""
    found = []
    for look in looks:
        ones, half = np.zeros(look, dtype=np.int64), np.where(np.arange(look) % 2, 1.0, -1.0)
        pairs = Pairs(values=values[:look], start=ones, other_start=ones, covariates=(half,) if look >= 6 else ())
        found.append(spread(pairs, scale=scale).p_below(0.0))
    return min(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--scale", type=float, default=1.0, help="what starts add, in those of the prior")
    parser.add_argument("--scatter", type=float, nargs="*", default=SCATTER, help="of pairs, log ratio")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write("scatter   one look of the last   " + "   ".join(f"{level:.2%}" for level in LEVELS) + "\n")
    for scatter in options.scatter:
        rng = np.random.default_rng(options.seed)
        runs = [drawn(rng, scatter, scale=options.scale * SCALE) for _ in range(options.draws)]
        least = np.array([least_p(each) for each in runs])
        last = np.array([least_p(each, looks=LOOKS[-1:]) for each in runs])
        shares = "   ".join(f"{np.mean(least <= level):.2%}" for level in LEVELS)
        sys.stdout.write(f"{scatter:.1%}   {np.mean(last <= ONE_START_LEVEL):.2%}   {shares}\n")


if __name__ == "__main__":
    main()
