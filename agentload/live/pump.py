"""Parse streams behind their arrival, some reads of one stream at a time.

A read is stamped when it is taken off its socket, so nothing hurries. A stream's reads are left
to gather and are then parsed in one go, which costs half as much as one by one; the backlog of
all streams is worked off in slices between two looks at the sockets, so that requests leave on
time. Memory stays bounded, and the end of a stream finds nearly all of it parsed.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

DELAY_S: Final = 0.2  # ten tokens, where a stream has fifty a second
SLICE: Final = 32  # reads: some 100 µs, by which a call that becomes due meanwhile is late
# between two turns of its own: a thousand streams would
# have it wake the loop thousands of times a second
REST_S: Final = 0.01
SHARE: Final = 8  # of a backlog that grows faster than slices work it off


class Backlog(Protocol):
    """Something that has reads left to parse."""

    def step(self, limit: int) -> int:
        """Parse up to so many reads and return how many it were."""

    @property
    def is_behind(self) -> bool:
        """Tell whether reads are left."""


class Pump:
    """Work off each backlog some time after it began, in order."""

    def __init__(self, *, delay_s: float = DELAY_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._queue: deque[tuple[float, Backlog]] = deque()
        self._timer: asyncio.Handle | None = None

    def add(self, backlog: Backlog) -> None:
        """Parse what this one holds, and what it will hold by then."""
        due_s = self._loop.time() + self._delay_s
        self._queue.append((due_s, backlog))
        if self._timer is None:
            self._timer = self._loop.call_at(due_s, self._turn)

    def turn(self) -> None:
        """Take a slice of what is due, in a turn of the loop that somebody else has paid for."""
        if self._queue and self._queue[0][0] <= self._loop.time():
            self._slice()

    def close(self) -> None:
        """Parse no more."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        now_s = self._slice()
        queue = self._queue
        if not queue:
            self._timer = None
        elif queue[0][0] <= now_s:
            self._timer = self._loop.call_soon(self._turn)
        else:
            self._timer = self._loop.call_at(max(queue[0][0], now_s + REST_S), self._turn)

    def _slice(self) -> float:
        queue, now_s = self._queue, self._loop.time()
        left = max(SLICE, len(queue) // SHARE)
        while queue and left > 0 and queue[0][0] <= now_s:
            # A backlog that somebody else has worked off costs a little too.
            backlog = queue[0][1]
            left -= max(1, backlog.step(left))
            if not backlog.is_behind:
                queue.popleft()
        return now_s
