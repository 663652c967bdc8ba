"""Read all streams in batches, every ms or two.

The kernel stamps what arrives, so reading a little later loses nothing, and it saves
much: one turn of asyncio's loop costs more than reading and parsing several chunks. Under
load all streams are therefore read in batches, from an epoll of their own; at low rates each
is read at once. What must not wait (the alarm of the next send, connections being opened) stays
with the loop, and an answer that is about to end is read at once, as a call may wait for it.
"""

import asyncio
import select
import sys
from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol, TypeAlias

from agentload.live.channel import SocketSource

ReadPath: TypeAlias = Literal["thread", "interpreter"]
REST_S: Final = 0.001
# The rest used where no stream has data after one rest and again after
# the next, so that no two chunks of a stream fall into one read.
LONG_REST_S: Final = 0.002
COMPARED: Final = 8  # once in this number of batches, two batches in a row are compared
SHORT_RESTS: Final = 128  # rests that stay short after a stream had data in both compared batches
# Streams in one batch above which rests are never short: 32,000 reads a second fill most of a
# core, and waking more often would fill it.
MANY: Final = 64
# Most reads between two turns of the loop. They take some 0.4 ms,
# by which a call that becomes due meanwhile is late.
BATCH: Final = 128


class Watcher(Protocol):
    """Describe what watches sockets: a hub, or a thread that reads them."""

    @property
    def path(self) -> ReadPath:
        """Who reads the sockets."""

    @property
    def lead_ns(self) -> int:
        """How long before its instant a call should come."""

    def watch(self, file: int, callback: Callable[[], None]) -> SocketSource | None:
        """Call *callback* whenever *file* has something; return what reads it, if it does not."""

    def send(
        self, file: int, callback: Callable[[], None], parts: Iterable[bytes], at_ns: int
    ) -> SocketSource | None:
        """Write all *parts* to *file* at *at_ns*, and watch it; return None if the caller must."""

    def hasten(self, file: int) -> None:
        """Call back for *file* at once from now on."""

    def leave(self, file: int) -> None:
        """Stop calling back for *file*; the descriptor must still be open."""

    def close(self) -> None:
        """Stop watching all descriptors."""


class Hub:
    """Call back for each descriptor that has something to read."""

    path: Final = "interpreter"
    # What is done before a call's instant takes some 0.3 ms, and may have to wait for a batch of
    # reads.
    lead_ns: Final = 2_000_000

    def __init__(self, *, beside: Callable[[], None] = lambda: None) -> None:
        """Watch nothing yet; call *beside* after each batch, in the same turn of the loop."""
        self._beside = beside
        self._loop = asyncio.get_running_loop()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._hastened: set[int] = set()
        self._found: set[int] = set()
        """Descriptors that had data in the batch that is compared with the next one."""
        self._rests = 0
        self._short_until = 0
        self._looked_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._epoll = self._hasty = None
        if sys.platform == "linux":
            self._epoll, self._hasty = select.epoll(), select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._woken)
            self._loop.add_reader(self._hasty.fileno(), self._look, self._hasty)

    def watch(self, file: int, callback: Callable[[], None]) -> None:
        """Call *callback* whenever *file* has something to read."""
        if self._epoll is None:
            self._loop.add_reader(file, callback)
            return
        self._epoll.register(file, select.EPOLLIN)
        self._callbacks[file] = callback

    def send(
        self, file: int, callback: Callable[[], None], parts: Iterable[bytes], at_ns: int
    ) -> None:
        """Leave it to the caller."""

    def hasten(self, file: int) -> None:
        """Call back for *file* at once from now on, not with the batch."""
        if (
            self._hasty is not None
            and self._epoll is not None
            and file in self._callbacks
            and file not in self._hastened
        ):
            self._hastened.add(file)
            self._epoll.unregister(file)
            self._hasty.register(file, select.EPOLLIN)

    def leave(self, file: int) -> None:
        """Stop calling back for *file*; the descriptor must still be open."""
        if self._epoll is None or self._hasty is None:
            self._loop.remove_reader(file)
        elif self._callbacks.pop(file, None) is not None:
            (self._hasty if file in self._hastened else self._epoll).unregister(file)
            self._hastened.discard(file)

    def close(self) -> None:
        """Stop watching all descriptors."""
        if self._timer is not None:
            self._timer.cancel()
        for epoll in (self._epoll, self._hasty):
            if epoll is not None:
                self._loop.remove_reader(epoll.fileno())
                epoll.close()

    def _woken(self) -> None:
        assert self._epoll is not None
        now_s = self._loop.time()
        is_busy = now_s - self._looked_s < REST_S
        self._looked_s = now_s
        if len(self._look(self._epoll)) == BATCH or is_busy:
            # Woken more than once a ms: from now on a timer reads, until it finds nothing.
            self._loop.remove_reader(self._epoll.fileno())
            self._timer = self._loop.call_later(REST_S, self._tick)

    def _tick(self) -> None:
        assert self._epoll is not None
        found: list[tuple[int, int]] = []
        # Assumed for the case that a callback raises: the others must still be looked at
        count = BATCH
        try:
            found = self._look(self._epoll)
            count = len(found)
            self._beside()
        finally:
            if count == BATCH:
                self._timer = self._loop.call_soon(self._tick)
            elif count:
                self._timer = self._loop.call_later(self._rest_s(found), self._tick)
            else:
                self._timer = None
                self._loop.add_reader(self._epoll.fileno(), self._woken)

    def _look(self, epoll: select.epoll) -> list[tuple[int, int]]:
        found = epoll.poll(0, BATCH)
        for file, _ in found:
            # An earlier callback of this batch may have stopped watching this descriptor.
            callback = self._callbacks.get(file)
            if callback is not None:
                callback()
        return found

    def _rest_s(self, found: list[tuple[int, int]]) -> float:
        self._rests += 1
        if self._rests % COMPARED == 0:
            self._found = {file for file, _ in found}
        elif self._rests % COMPARED == 1 and any(file in self._found for file, _ in found):
            self._short_until = self._rests + SHORT_RESTS
        if self._rests < self._short_until and len(found) < MANY:
            return REST_S
        return LONG_REST_S
