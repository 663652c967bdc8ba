"""Do things each at its instant, in order."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

from agentload.live.alarm import Alarm


class Timetable:
    """Hold what is to be done until its time has come."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._alarm = Alarm(self._ring)

    def at(self, at_ns: int, act: Callable[[], None]) -> None:
        """Act at that instant; at once when it has passed."""
        if at_ns <= time.monotonic_ns():
            act()
            return
        self._count += 1
        entry = (at_ns, self._count, act)
        heapq.heappush(self._entries, entry)
        if self._entries[0] is entry:
            self._alarm.set(at_ns)

    def close(self) -> None:
        """Do nothing any more."""
        self._entries.clear()
        self._alarm.close()

    def _ring(self) -> None:
        try:
            while self._entries and self._entries[0][0] <= time.monotonic_ns():
                heapq.heappop(self._entries)[2]()
        finally:  # whatever one of them raised, the others have their instants
            if self._entries:
                self._alarm.set(self._entries[0][0])
