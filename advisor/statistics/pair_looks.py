"""Play a sequence of looks at block pairs against a simulated truth: how likely is a gain shown?

What is asked of each simulated look is what the verdict asks: the upper end of the same
interval, at the level of that look. What a start adds is drawn once for all pairs of it; the
only one of a server moves every look alike, so it is not drawn but weighed by its prior.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from advisor.evidence import Floats
from advisor.statistics.paired import PairTable, pairs_of
from advisor.statistics.starts import below, highest

DRAWS = 200
MOST_LOOKS = (
    64  # pairs that are drawn, whatever is looked at: a longer sequence repeats the shorter one
)


def shown(
    looks: Sequence[tuple[int, float]],
    *,
    gains: Sequence[float],
    margin: float,
    deviation: float,
    scale: float,
    starts: int | None,
) -> tuple[float, ...]:
    """Return, for each of the *gains*, how likely some look shows
    that it exceeds the *margin*; both are changes of the log ratio.

    A look is so many pairs, judged at a one-sided level. Pairs scatter by *deviation*; *scale*
    is that of the prior of starts. They take turns on so many *starts*; None: each has its own.
    """
    ends = [
        _ends(pairs, level, deviation=deviation, scale=scale, starts=starts)
        for pairs, level in looks
    ]
    room = -margin - np.min(ends, axis=0)
    if starts == 1:
        return tuple(float(np.mean(below(room + gain, scale=scale))) for gain in gains)
    return tuple(float(np.mean(room + gain > 0)) for gain in gains)


@cache
def _ends(
    pairs: int, level: float, *, deviation: float, scale: float, starts: int | None
) -> Floats:
    """Return the upper ends of what so many pairs show where nothing differs."""
    drawn = np.random.default_rng(0)
    values = deviation * drawn.standard_normal((MOST_LOOKS, DRAWS))
    start = np.arange(MOST_LOOKS) % (starts or MOST_LOOKS)
    if starts != 1:
        values = values + scale * drawn.standard_normal(values.shape)[start] * np.abs(
            drawn.standard_normal(DRAWS)
        )
    table = PairTable(
        pair=np.arange(pairs),
        value=values[:pairs, 0],
        calls=np.ones(pairs, dtype=np.int64),
        start=start[:pairs],
        other_start=start[:pairs],
        order=np.resize([1, -1, -1, 1], pairs),
        machine=np.zeros(pairs, dtype=np.int64),
    )
    return highest(pairs_of(table), values[:pairs], scale=scale, level=level)
