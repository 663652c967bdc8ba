"""When each recent engine step ended. All sequences of a step emit at its end, so one log serves every call as a slice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SMALL = 24
"""Below this many steps a Python loop beats the fixed cost of numpy calls."""
_FIRST_CAPACITY = 4096


class StepLog:
    """Hold the end instants (ps) of steps `first` to `last`; steps are numbered from 1."""

    __slots__ = ("_ends", "_first", "_half_squares", "_scratch", "_steps", "last")

    def __init__(self) -> None:
        self.last = 0
        self._first = 1
        self._ends = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._steps = np.arange(1, 257, dtype=np.int64)
        self._half_squares = self._steps * (self._steps - 1) // 2
        self._scratch = np.empty_like(self._steps)

    def append(self, end_ps: int) -> None:
        """Note one step."""
        at = self.last + 1 - self._first
        if at >= len(self._ends):
            self._grow(at + 1)
        self._ends[at] = end_ps
        self.last += 1

    def append_run(self, start_ps: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """Note *steps* steps from `start_ps` on, the first of which lasts `first_ps` and each next one `growth_ps` more."""
        at = self.last + 1 - self._first
        if at + steps > len(self._ends):
            self._grow(at + steps)
        if steps < _SMALL:
            few, lasts = [], first_ps
            for _ in range(steps):
                start_ps += lasts
                lasts += growth_ps
                few.append(start_ps)
            self._ends[at : at + steps] = few
        else:
            if steps > len(self._steps):
                self._steps = np.arange(1, 2 * steps + 1, dtype=np.int64)
                self._half_squares = self._steps * (self._steps - 1) // 2
                self._scratch = np.empty_like(self._steps)
            ends, scratch = self._ends[at : at + steps], self._scratch[:steps]
            np.multiply(self._steps[:steps], first_ps, out=ends)
            np.multiply(self._half_squares[:steps], growth_ps, out=scratch)
            ends += scratch
            ends += start_ps
        self.last += steps

    def ends_ps(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the end instants of steps *first* to *last*."""
        return self._ends[first - self._first : last + 1 - self._first]

    def forget_before(self, first: int) -> None:
        """Drop the steps before *first*; nobody will ask for them."""
        dropped = min(first, self.last + 1) - self._first
        if dropped <= 0:
            return
        kept = self.last + 1 - self._first - dropped
        self._ends[:kept] = self._ends[dropped : dropped + kept].copy()
        self._first += dropped

    @property
    def held(self) -> int:
        """Count the steps that are held."""
        return self.last + 1 - self._first

    def _grow(self, needed: int) -> None:
        grown = np.empty(max(needed, 2 * len(self._ends)), dtype=np.int64)
        grown[: self.held] = self._ends[: self.held]
        self._ends = grown
