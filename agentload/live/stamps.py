"""Ask the Linux kernel when bytes arrived and left, on the monotonic clock.

Source: Documentation/networking/timestamping.rst. A receive stamp comes with the bytes and is
that of the last byte returned. A send stamp comes back on the socket's error queue; it names
its write by the offset of the write's last byte.

The stamps are wall time. Linux slews the wall clock and the monotonic one alike, so
their difference is constant until somebody steps the wall clock. The difference is measured
again and again; a step is counted, so that calls in flight around it can be named.
"""

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

# From asm-generic/socket.h and linux/net_tstamp.h; Python's socket module lacks these constants.
_SO_TIMESTAMPING: Final = 37
_MSG_ERRQUEUE: Final = 0x2000
_TX_SOFTWARE = 1 << 1
_RX_SOFTWARE = 1 << 3
_SOFTWARE = 1 << 4
_OPT_ID, _OPT_TSONLY = 1 << 7, 1 << 11
_RECEIVE: Final = _RX_SOFTWARE | _SOFTWARE
_BOTH: Final = _RECEIVE | _TX_SOFTWARE | _OPT_ID | _OPT_TSONLY
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_ORIGIN_TIMESTAMPING, _TSTAMP_SND = 4, 0
_timespec: Final = struct.Struct("@ll").unpack_from
# errno, origin, type, code, pad, info, data
_extended_error: Final = struct.Struct("=IBBBBII").unpack_from
SECOND: Final = 1_000_000_000
VIGIL_TRIES: Final = 100
ANCILLARY_BYTES: Final = 256  # three timespecs, and an extended error with an address
Ancillary = Sequence[tuple[int, int, bytes]]
# Number of samples of which the narrowest is used: an interrupt between two readings widens one.
TRIES: Final = 5
# A narrow sample is good to below a µs, so a larger move of the offset than this is a step
STEP_NS: Final = 50_000


def stamp_received(sock: socket.socket) -> bool:
    """Have the kernel stamp what *sock* receives; call this before connecting.

    Returns False where the kernel cannot.
    """
    return sys.platform == "linux" and sock.family != socket.AF_UNIX and _set(sock, _RECEIVE)


def stamp_sent(sock: socket.socket) -> bool:
    """Have the kernel stamp what *sock* sends too; returns False where it cannot.

    Call this once connected and before the first byte, which then has offset 0.
    """
    return sys.platform == "linux" and sock.family != socket.AF_UNIX and _set(sock, _BOTH)


class Vigil:
    """Keep the kernel stamping.

    The kernel starts some time after the first socket asks for stamps, and stops with the last.
    """

    def __init__(self) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self._is_asked = stamp_received(self._sock)

    async def begun(self) -> bool:
        """Wait until the kernel stamps what arrives; return False if it does not."""
        if not self._is_asked:
            return False
        try:
            self._sock.bind(("127.0.0.1", 0))
            self._sock.connect(self._sock.getsockname())
            for _ in range(VIGIL_TRIES):
                self._sock.send(b".")
                await asyncio.sleep(0.001)
                if received_ns(self._sock.recvmsg(1, ANCILLARY_BYTES)[1]) is not None:
                    return True
        except OSError:  # no loopback: the first calls will show it
            return False
        return False

    def close(self) -> None:
        """Let the kernel stop stamping."""
        self._sock.close()


def received_ns(ancillary: Ancillary) -> int | None:
    """Return the wall time of a receive stamp; None if there is none."""
    for _level, kind, data in ancillary:
        if kind == _SO_TIMESTAMPING:
            seconds, nanoseconds = _timespec(data)
            if seconds:
                wall_ns: int = seconds * SECOND + nanoseconds
                return wall_ns
    return None


def sent_ns(sock: socket.socket) -> list[tuple[int, int]]:
    """Take all send stamps from the error queue: (offset of the write's last byte, wall time)."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            _, ancillary, _, _ = sock.recvmsg(0, ANCILLARY_BYTES, _MSG_ERRQUEUE)
        except (BlockingIOError, InterruptedError):
            return found
        wall_ns = received_ns(ancillary)
        for level, kind, data in ancillary:
            if (level, kind) not in {
                (socket.IPPROTO_IP, _IP_RECVERR),
                (socket.IPPROTO_IPV6, _IPV6_RECVERR),
            }:
                continue
            _, origin, _, _, _, info, offset = _extended_error(data)
            if origin == _ORIGIN_TIMESTAMPING and info == _TSTAMP_SND and wall_ns is not None:
                found.append((offset, wall_ns))


def _set(sock: socket.socket, flags: int) -> bool:
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, flags)
    except OSError:
        return False
    return True


class StampClock:
    """Know how far the wall clock is ahead of the monotonic one."""

    def __init__(
        self,
        *,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.now_ns = monotonic_ns
        """The monotonic clock itself."""
        self.steps = 0
        """How often the wall clock was stepped."""
        self.largest_step_ns = 0
        self.offset_ns, self.width_ns = 0, 0
        self._wall_ns = wall_ns
        self.offset_ns, self.width_ns = self._measured()

    def sample(self) -> None:
        """Measure the offset again; adopt it and count a step when it has moved."""
        offset_ns, width_ns = self._measured()
        moved_ns = abs(offset_ns - self.offset_ns)
        if moved_ns > max(STEP_NS, width_ns):
            self.steps += 1
            self.largest_step_ns = max(self.largest_step_ns, moved_ns)
            self.offset_ns, self.width_ns = offset_ns, width_ns
        elif width_ns < self.width_ns:
            self.offset_ns, self.width_ns = offset_ns, width_ns

    def between(self, before_ns: int, wall_ns: int, now_ns: int, *, begun_ns: int) -> int | None:
        """Convert a stamp to the monotonic clock, kept between *before_ns* and *now_ns*.

        The stamped event is over at *now_ns*. Bytes that were lost and sent again may have arrived
        before those that they wait for, at *before_ns*. Nothing can have happened before
        *begun_ns*: a stamp that says so, or one of the future, is None.
        """
        at_ns = wall_ns - self.offset_ns
        if before_ns <= at_ns <= now_ns:
            return at_ns
        # The wall clock may have been stepped since its offset was measured.
        self.sample()
        at_ns = wall_ns - self.offset_ns
        doubt_ns = max(STEP_NS, self.width_ns)
        if not begun_ns - doubt_ns <= at_ns <= now_ns + doubt_ns:
            return None
        return max(before_ns, min(at_ns, now_ns))

    def _measured(self) -> tuple[int, int]:
        best: tuple[int, int] | None = None
        for _ in range(TRIES):
            before = self.now_ns()
            wall = self._wall_ns()
            after = self.now_ns()
            if best is None or after - before < best[1]:
                best = (wall - (before + after) // 2, after - before)
        assert best is not None
        return best
