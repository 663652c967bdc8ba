"""Bootstrap whole units where a figure has no closed form; parts of a unit stay together.

The standard error of the draws is widened by sqrt(n / (n - 1)) and read against Student's
t, which repairs the narrowness of the bootstrap with few units (Hesterberg 2015).
"""

import numpy as np

from advisor.evidence import Floats, Ints
from advisor.statistics.spread import Spread

DRAWS = 2000
SEED = 20260422  # fixed: equal evidence gives an equal decision


def cluster_variance(values: Floats, index: Ints) -> float:
    """Return the variance of the mean of *values* where rows of a cluster share its luck.

    Clusters are numbered 0, 1, …, two at least.
    """
    centred = values - values.mean()
    sums = np.bincount(index, weights=centred)
    clusters = sums.size
    squares = float(sums @ sums)
    return clusters / (clusters - 1) * squares / values.size**2


def draw_weights(n: int, *, draws: int = DRAWS) -> Floats:
    """Return how often each of *n* units is taken, one row a draw."""
    rng = np.random.default_rng(SEED)
    taken = rng.integers(0, n, size=(draws, n))
    # Each draw counts in n places of its own.
    first = n * np.arange(draws)[:, None]
    places = (taken + first).ravel()
    counts = np.bincount(places, minlength=draws * n)
    return counts.reshape(draws, n).astype(np.float64)


def spread(value: float, drawn: Floats, *, units: int, lost: int = 1) -> Spread:
    """Return the distribution behind *drawn* values of a statistic over *units* units.

    *lost* is the number of degrees of freedom spent.
    """
    usable = drawn[np.isfinite(drawn)]
    df = max(units - lost, 1)
    se = float("inf")
    if usable.size:
        wider = float(np.sqrt(units / df))
        se = float(np.std(usable)) * wider
    return Spread(value=value, se=se, df=df, units=units, unit_name="block pairs")
