"""Simulate looks at block pairs against a known truth: how likely is a gain shown?

Each simulated look is judged as the verdict judges: by the upper end of the same interval, at
the level of that look. What a start adds is drawn once for all pairs of it. A server's only
start moves every look alike, so it is not drawn but weighed by its prior.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from advisor.evidence import Floats
from advisor.statistics.paired import PairTable, pairs_of
from advisor.statistics.starts import below, highest

DRAWS = 200
# pairs drawn, however few are looked at: a longer sequence then repeats the shorter one
MOST_LOOKS = 64


def chances_shown(
    looks: Sequence[tuple[int, float]],
    *,
    gains: Sequence[float],
    margin: float,
    deviation: float,
    scale: float,
    starts: int | None,
) -> tuple[float, ...]:
    """Return, for each of *gains*, how likely some look shows that the gain exceeds *margin*.

    Gains and margin are changes of the log ratio. A look is a number of pairs, with the one-sided
    level at which it is judged. Pairs scatter by *deviation*; *scale* is that of the prior of
    starts. Pairs take turns on *starts* starts; None: each pair has its own.
    """
    ends = [
        _ends(pairs, level, deviation=deviation, scale=scale, starts=starts)
        for pairs, level in looks
    ]
    room = -margin - np.min(ends, axis=0)
    chances = []
    for gain in gains:
        shown = room + gain > 0
        if starts == 1:
            shown = below(room + gain, scale=scale)
        chances.append(float(np.mean(shown)))
    return tuple(chances)


@cache
def _ends(
    pairs: int, level: float, *, deviation: float, scale: float, starts: int | None
) -> Floats:
    """Return the upper ends that *pairs* pairs show where nothing differs, one for each draw."""
    rng = np.random.default_rng(0)
    values = deviation * rng.standard_normal((MOST_LOOKS, DRAWS))
    start = np.arange(MOST_LOOKS) % (starts or MOST_LOOKS)
    if starts != 1:
        of_start = scale * rng.standard_normal(values.shape)[start]
        values = values + of_start * np.abs(rng.standard_normal(DRAWS))
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
