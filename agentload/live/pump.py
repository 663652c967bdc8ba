"""Parse streams right behind their arrival, when nothing else is waiting.

A burst (every stream of a batch gets its token in the same step) is first read whole, which stamps it and keeps requests on time; then
the backlog is parsed in slices between two looks at the sockets. Parsing many reads in one go costs half as much as one by one, memory
stays bounded, and the end of a stream finds it parsed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

DELAY_S: Final = 0.005  # a turn of the loop costs more than parsing a read: let some gather
SLICE: Final = 32  # reads: some 100 µs, by which a call that becomes due meanwhile is late
SHARE: Final = 8  # of a backlog that grows faster than slices work it off


class Backlog(Protocol):
    """Something that has reads left to parse."""

    def step(self, limit: int) -> int:
        """Parse up to so many reads and return how many it were."""

    @property
    def is_behind(self) -> bool:
        """Tell whether reads are left."""


class Pump:
    """Work off the backlogs in the order in which they began."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Backlog] = deque()
        self._timer: asyncio.Handle | None = None

    def add(self, backlog: Backlog) -> None:
        """Parse what this one holds, soon."""
        self._queue.append(backlog)
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY_S, self._turn)

    def close(self) -> None:
        """Parse no more."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        queue = self._queue
        left = max(SLICE, len(queue) // SHARE)
        while queue and left > 0:
            # A backlog that somebody else has worked off costs a little too.
            left -= max(1, queue[0].step(left))
            if not queue[0].is_behind:
                queue.popleft()
        self._timer = self._loop.call_soon(self._turn) if queue else None
