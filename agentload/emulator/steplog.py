"""Log when steps end, for the calls that emit at their ends.

All sequences of a step emit at its end, so a slice of one log serves every call. Steps are logged
in runs, which are computed when somebody reads them, all at once: numpy takes as long for one run
as for a hundred.
"""

import numpy as np
from numpy.typing import NDArray

_FIRST_CAPACITY = 4096
_ONES = np.ones(1 << 16, dtype=np.uint16)
_ONES.flags.writeable = False


class StepLog:
    """Hold the end instants (ps) of steps `first` to `last`; steps are numbered from 1."""

    __slots__ = ("_computed", "_ends", "_runs", "first", "last")

    def __init__(self, *, first: int = 1) -> None:
        self.first = first
        self.last = first - 1
        self._ends = np.empty(_FIRST_CAPACITY, dtype=np.int64)
        self._computed = 0  # how many of `_ends` are known
        # runs of steps after those: start, first step, growth, steps
        self._runs: list[tuple[int, int, int, int]] = []

    def append(self, end_ps: int) -> None:
        """Add one step."""
        self._runs.append((end_ps, 0, 0, 1))
        self.last += 1

    def append_run(self, start_ps: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """Add *steps* steps that start at *start_ps*.

        The first lasts *first_ps*, and each next one *growth_ps* more than the one before it.
        """
        self._runs.append((start_ps, first_ps, growth_ps, steps))
        self.last += steps

    def ends_ps(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the end instants of steps *first* to *last*, as a view that never changes."""
        if last >= self.first + self._computed:
            self._compute()
        return self._ends[first - self.first : last + 1 - self.first]

    def since(self, first: int) -> "StepLog":
        """Return a log of the steps from *first* on; this one stays as it is."""
        kept = StepLog(first=min(max(first, self.first), self.last + 1))
        ends = self.ends_ps(kept.first, self.last)
        kept.last = self.last
        kept._reserve()
        kept._ends[: len(ends)] = ends
        kept._computed = len(ends)
        return kept

    @property
    def held(self) -> int:
        """Number of steps in the log."""
        return self.last + 1 - self.first

    def _reserve(self) -> None:
        """Make room for all steps; views of the room there was stay valid."""
        if self.held > len(self._ends):
            larger = np.empty(max(self.held, 2 * len(self._ends)), dtype=np.int64)
            larger[: self._computed] = self._ends[: self._computed]
            self._ends = larger

    def _compute(self) -> None:
        """Compute the ends of the runs, and forget the runs."""
        self._reserve()
        if self.held == self._computed + 1:  # a live server reads after each step
            ((start_ps, first_ps, _, _),) = self._runs
            self._ends[self._computed] = start_ps + first_ps
        else:
            start, first, growth, steps = np.array(self._runs, dtype=np.int64).T
            before = np.repeat(np.cumsum(steps) - steps, steps)
            step = np.arange(1, len(before) + 1) - before
            ends = np.repeat(start, steps) + step * np.repeat(first, steps)
            ends += step * (step - 1) // 2 * np.repeat(growth, steps)
            self._ends[self._computed : self.held] = ends
        self._computed = self.held
        self._runs.clear()


class Stay:
    """Say what a call emitted while it was in the batch: at each step, *counts* tokens or one."""

    __slots__ = ("_counts", "_first", "_last", "_log")

    def __init__(
        self, log: StepLog, first: int, last: int, counts: NDArray[np.uint16] | None = None
    ) -> None:
        self._log = log
        self._first = first
        self._last = last
        self._counts = counts

    def ends_ps(self) -> NDArray[np.int64]:
        """Return when each emission left, in ps."""
        return self._log.ends_ps(self._first, self._last)

    def token_counts(self) -> NDArray[np.uint16]:
        """Return the tokens of each emission."""
        emissions = self._last - self._first + 1
        if self._counts is not None:
            return self._counts[:emissions]
        return _ONES[:emissions] if emissions <= len(_ONES) else np.ones(emissions, dtype=np.uint16)


def ends_ps(stays: tuple[Stay, ...]) -> NDArray[np.int64]:
    """Return when each emission of some stays left, in ps."""
    if len(stays) == 1:
        return stays[0].ends_ps()
    return np.concatenate([np.empty(0, dtype=np.int64), *[stay.ends_ps() for stay in stays]])


def token_counts(stays: tuple[Stay, ...]) -> NDArray[np.uint16]:
    """Return the tokens of each emission of some stays."""
    if len(stays) == 1:
        return stays[0].token_counts()
    return np.concatenate([_ONES[:0], *[stay.token_counts() for stay in stays]])
