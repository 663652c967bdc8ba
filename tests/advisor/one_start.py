"""Derive the level of a look at servers that run: `python -m
tests.advisor.one_start [--starts 1 2 4 8] [--draws 2000]`.

What a start adds is drawn once, so looks at more pairs of it repeat one error more than they
add to it; replicas that pairs take turns on are as many starts. Everything is drawn from the
prior that the estimator integrates over: then one look errs as often as its level says, and
only the looks in between are simulated. Printed are, by starts, by what pairs scatter by and
by level, the shares of sequences of which some look excludes the truth on one side. A look
at no more pairs than starts is one at a start a pair, with that level: left out.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from advisor.statistics.planning import PLANNED_LEVEL, planned_level
from advisor.statistics.starts import LASTING, WANDER, Pairs, spread
from agentload.decision.sequence import PAIRS, pairs_of_starts

SCATTER = (0.01, 0.02, 0.036, 0.06)
SCALE = math.sqrt(2) * 0.015
LEVELS = (PLANNED_LEVEL, 0.007, 0.009, 0.012, 0.0135, 0.017, 0.02, 0.025)


def looks_at(starts: int) -> tuple[int, ...]:
    """Return the looks that a decision takes at pairs of so many starts, once it returns to one."""
    return tuple(each for each in PAIRS if starts < each <= pairs_of_starts(starts))


def drawn(
    rng: np.random.Generator, scatter: float, *, starts: int = 1, scale: float = SCALE
) -> np.ndarray:
    """Draw the log ratios of as many pairs as are looked at: no
    effect, some starts in turn, and a wander in one of two runs.
    """
    pairs = looks_at(starts)[-1]
    added = abs(rng.normal(0.0, scale)) * rng.standard_normal(starts)
    values = added[np.arange(pairs) % starts] + scatter * rng.standard_normal(pairs)
    if rng.random() < 0.5:
        size, lasting, place = (
            abs(rng.normal(0.0, WANDER[-1] / 2.45)),
            rng.choice(LASTING),
            np.arange(pairs),
        )
        correlated = np.exp(-np.abs(place[:, None] - place) / lasting)
        values = values + size * np.linalg.cholesky(correlated) @ rng.standard_normal(pairs)
    return np.asarray(values)


def ps(values: np.ndarray, *, starts: int = 1, scale: float = SCALE) -> np.ndarray:
    """Return the p-value that each look has against the truth, one-sided."""
    found = []
    for look in looks_at(starts):
        place = np.arange(look)
        start, half = place % starts, np.where((place // starts + place % starts) % 2, 1.0, -1.0)
        pairs = Pairs(
            values=values[:look],
            start=start,
            other_start=start,
            covariates=(half,) if look >= 6 else (),
        )
        found.append(spread(pairs, scale=scale).p_below(0.0))
    return np.array(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument(
        "--starts", type=int, nargs="*", default=(1, 2, 4, 8), help="which pairs take turns on"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="what starts add, in those of the prior"
    )
    parser.add_argument(
        "--scatter", type=float, nargs="*", default=SCATTER, help="of pairs, log ratio"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(
        "starts   level   scatter   last look alone   "
        + "   ".join(f"{level:.2%}" for level in LEVELS)
        + "\n"
    )
    for starts in options.starts:
        own = planned_level(0.05, starts=starts)
        for scatter in options.scatter:
            rng = np.random.default_rng((options.seed, starts))
            runs = [
                ps(drawn(rng, scatter, starts=starts, scale=options.scale * SCALE), starts=starts)
                for _ in range(options.draws)
            ]
            last = np.mean([each[-1] <= own for each in runs])
            least = np.array([each.min() for each in runs])
            shares = "   ".join(f"{np.mean(least <= level):.2%}" for level in LEVELS)
            sys.stdout.write(f"{starts}   {own:.2%}   {scatter:.1%}   {last:.2%}   {shares}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
