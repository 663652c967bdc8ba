"""Wake at an instant, to some 50 µs: asyncio's own timers round up to the next millisecond."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
TFD_NONBLOCK = os.O_NONBLOCK
TFD_CLOEXEC = os.O_CLOEXEC
SECOND = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Alarm:
    """Call back at a monotonic instant; setting it again moves it. Uses a timer descriptor where the kernel has them."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _timer_descriptor()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._expired)

    def set(self, at_ns: int) -> None:
        """Ring at *at_ns*; at once when that has passed."""
        if self._fd is not None:
            at_ns = max(at_ns, 1)  # 0 would disarm the timer
            value = _Itimerspec(_Timespec(0, 0), _Timespec(at_ns // SECOND, at_ns % SECOND))
            _LIBC.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(value), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0, at_ns - time.monotonic_ns()) / SECOND, self._ring)

    def close(self) -> None:
        """Ring no more."""
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
        except BlockingIOError:  # moved after it had fired
            return
        self._ring()


_LIBC = ctypes.CDLL(None, use_errno=True)


def _timer_descriptor() -> int | None:
    if not hasattr(_LIBC, "timerfd_create"):
        return None
    descriptor = _LIBC.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
    return descriptor if descriptor >= 0 else None
