"""Parse streams some time after their bytes arrive, several reads of one stream at a time.

A read is stamped when it is taken off its socket, so parsing need not hurry. The reads of a
stream gather and are then parsed together, which costs half as much as one by one. The backlog
of all streams is parsed in slices between two looks at the sockets, so that requests leave on
time. Memory stays bounded, and when a stream ends nearly all of it is parsed.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

DELAY_S: Final = 0.2  # time of ten tokens of a stream that sends fifty a second
# Reads in one slice: some 100 µs, by which a call that becomes due meanwhile is late
SLICE: Final = 32
# Between two turns of the pump itself: a thousand streams would
# otherwise make it wake the loop thousands of times a second.
REST_S: Final = 0.01
# A slice takes at least 1/8 of the queue, if that grows faster than slices shorten it
SHARE: Final = 8


class Backlog(Protocol):
    """Describe a stream that has reads left to parse."""

    def step(self, limit: int) -> int:
        """Parse up to *limit* reads; return how many were parsed."""

    @property
    def is_behind(self) -> bool:
        """Whether reads are left to parse."""


class Pump:
    """Parse each backlog some time after it began, in order."""

    def __init__(self, *, delay_s: float = DELAY_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_s = delay_s
        self._queue: deque[tuple[float, Backlog]] = deque()
        self._timer: asyncio.Handle | None = None

    def add(self, backlog: Backlog) -> None:
        """Parse after the delay what *backlog* holds then."""
        due_s = self._loop.time() + self._delay_s
        self._queue.append((due_s, backlog))
        if self._timer is None:
            self._timer = self._loop.call_at(due_s, self._turn)

    def turn(self) -> None:
        """Parse one slice of what is due, in a turn of the loop that has other work too."""
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
        queue = self._queue
        now_s = self._loop.time()
        left = max(SLICE, len(queue) // SHARE)
        while queue and left > 0 and queue[0][0] <= now_s:
            # Even a backlog that was parsed elsewhere in the meantime costs a little.
            backlog = queue[0][1]
            left -= max(1, backlog.step(left))
            if not backlog.is_behind:
                queue.popleft()
        return now_s
