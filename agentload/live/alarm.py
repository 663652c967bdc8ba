"""Act at an instant, to within about 50 µs; asyncio's own timers round up to the next ms."""

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable
from struct import Struct

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
TFD_NONBLOCK = os.O_NONBLOCK
TFD_CLOEXEC = os.O_CLOEXEC
SECOND = 1_000_000_000


# A struct itimerspec: seconds and ns between two rings, none here, then those of the first ring.
_ONCE = Struct("@4l")


class Waker:
    """Call back at an instant of the monotonic clock; setting the alarm again moves the instant.

    Uses a timer descriptor (timerfd) where the kernel has them.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _timer_descriptor()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._expired)

    def set(self, at_ns: int) -> None:
        """Ring at *at_ns*, or at once if that has passed."""
        if self._fd is not None:
            instant = divmod(max(at_ns, 1), SECOND)  # 0 would disarm the timer
            _LIBC.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, _ONCE.pack(0, 0, *instant), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(
            max(0, at_ns - time.monotonic_ns()) / SECOND, self._ring
        )

    def close(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _expired(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # the alarm was moved after it had fired
            return
        self._ring()


_LIBC = ctypes.CDLL(None, use_errno=True)


def _timer_descriptor() -> int | None:
    if not hasattr(_LIBC, "timerfd_create"):
        return None
    descriptor = _LIBC.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
    return descriptor if descriptor >= 0 else None


class Timetable:
    """Hold functions until the instants at which they are to be called."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._alarm = Waker(self._ring)

    def at(self, at_ns: int, act: Callable[[], None]) -> None:
        """Call *act* at *at_ns*, or at once if that has passed."""
        if at_ns <= time.monotonic_ns():
            act()
            return
        self._count += 1
        entry = (at_ns, self._count, act)
        heapq.heappush(self._entries, entry)
        if self._entries[0] is entry:
            self._alarm.set(at_ns)

    def close(self) -> None:
        """Drop everything that is still to be called."""
        self._entries.clear()
        self._alarm.close()

    def _ring(self) -> None:
        try:
            while self._entries and self._entries[0][0] <= time.monotonic_ns():
                heapq.heappop(self._entries)[2]()
        finally:  # if one function raises, the others are still called at their instants
            if self._entries:
                self._alarm.set(self._entries[0][0])
