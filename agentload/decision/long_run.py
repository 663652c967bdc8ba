"""Find the load that a twin carries in the long run.

Which sessions a trial draws moves its limit by a fifth. So a twin plays many long draws of
sessions, the same ones at two loads next to each other: at one of them the wanted share of turns is
within the service level over all draws, at the other it is not. What lies between is read off both,
and the scatter from draw to draw says how well it is known.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import scipy

from advisor.evidence import Floats
from agentload.model.record import Record

LEVEL: Final = 0.95
KNOWN: Final = 0.015
"""Half width of the interval of the log of a load at which no more draws are played."""
DRAWS: Final = (6, 12)
"""Draws after which the scatter is looked at; the last are the most."""
APART: Final = 0.05
"""Share of the load by which both loads differ, one session at least."""
FAR: Final = 1.5
"""Factor to a load that is known roughly, beyond which nothing is looked for."""

PlayTurns: TypeAlias = Callable[[int, int], tuple[int, int]]
"""Plays so many sessions of the draw of a number; returns its turns, and those that held."""


class LongRunLoad(Record):
    """State the load that a twin carries in the long run."""

    load: float
    error: float
    """Half width of the interval of its log, at `LEVEL`."""


class _Played(Record, eq=False):
    """What some draws of sessions show at a load."""

    logit: float
    """That of the share of turns that held, over all draws."""
    moved: Floats
    """By how much each draw moves it."""


def long_run(play: PlayTurns, near: float, *, share: float) -> LongRunLoad | None:
    """Return the load at which *share* of the turns holds; None where it is far from *near*."""
    kept = cache(play)
    found = None
    for draws in DRAWS:

        @cache
        def played(load: int, draws: int = draws) -> _Played:
            return _played([kept(load, each) for each in range(draws)])

        begin = near if found is None else found.load
        found = _crossed(played, begin, wanted=float(scipy.special.logit(share)))
        if found is None or found.error <= KNOWN:
            break
    return found


def _played(draws: Sequence[tuple[int, int]]) -> _Played:
    turns, within = np.array(draws, dtype=np.float64).T
    least = 0.5 / turns.sum()  # no share is exactly none or all
    share = np.clip(within.sum() / turns.sum(), least, 1 - least)
    moved = (within - share * turns) / turns.mean() / (share * (1 - share))
    return _Played(logit=float(scipy.special.logit(share)), moved=moved)


def _crossed(played: Callable[[int], _Played], near: float, *, wanted: float) -> LongRunLoad | None:
    """Return where the logit falls to what is *wanted*, between two loads next to each other."""
    apart = max(1, round(APART * near))
    low = max(1, math.floor(near))
    while played(low).logit < wanted:
        low -= apart
        if low < max(1.0, near / FAR):
            return None
    while played(low + apart).logit >= wanted:
        low += apart
        if low > near * FAR:
            return None
    below, above = played(low), played(low + apart)
    way = (below.logit - wanted) / (below.logit - above.logit)
    between = math.log((low + apart) / low)
    slope = (below.logit - above.logit) / between
    moved = ((1 - way) * below.moved + way * above.moved) / slope
    deviations = scipy.special.stdtrit(moved.size - 1, 0.5 + LEVEL / 2)
    error = deviations * moved.std(ddof=1) / math.sqrt(moved.size)
    return LongRunLoad(load=low * math.exp(way * between), error=float(error))
