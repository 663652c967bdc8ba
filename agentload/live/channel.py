"""Read and write a connected socket, with the instants at which the kernel had the bytes."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from agentload.live.stamps import ANCILLARY_BYTES, StampClock, received_ns, sent_ns, stamp_sent

READ_BYTES: Final = 32 << 10  # as many of the smallest chunks as are parsed in some 10 ms
MAX_BUFFERS: Final = 64  # far below IOV_MAX
_OFFSETS: Final = 1 << 32
Read: TypeAlias = tuple[int, bytes]
"""When bytes arrived, and the bytes; none mean the end of the stream."""


class SocketSource(Protocol):
    """Describe what reads a socket in place of its channel."""

    is_urgent: bool
    """Whether what was taken last must not wait: it may hold an end, or what nobody expects."""
    sent: tuple[int, int, int] | None
    """A send stamp that came with it: offset of the write's last byte, wall time, our own."""
    writes: bool
    """Whether it writes the request too."""
    written: tuple[int, int, int]
    """What it wrote before it was taken last: when it began, when it was done, and the bytes.

    Each is 0 where that did not happen since the time before.
    """

    def take(self) -> Sequence[tuple[int, int, bytes]]:
        """Return what was read: the stamp in wall time (0: none), when it was read, and the bytes.

        Raises `OSError` once the connection has failed and all before that was taken.
        """

    def expect(self, reads: int, *, is_eager: bool) -> None:
        """Expect an end after so many more *reads*; be told of each read if *is_eager*."""


class Link(Protocol):
    """Describe what an exchange talks through: a plain channel, or TLS over one."""

    file: int
    """The socket's file descriptor.

    Kept because asyncio formats the addresses of a socket object to look it up, which takes 10 µs.
    """
    peer: str

    @property
    def is_stamped(self) -> bool:
        """Whether the kernel stamps this connection."""

    @property
    def unstamped_reads(self) -> int:
        """How many reads the kernel gave no stamp."""

    @property
    def is_sent_stamped(self) -> bool:
        """Whether the kernel stamped the last byte written so far."""

    @property
    def is_encrypted(self) -> bool:
        """Whether only the link itself can tell what it carries."""

    def read_through(self, source: SocketSource | None) -> None:
        """Receive what *source* has read from now on; None: read the socket."""

    def receive(self) -> Iterable[Read]:
        """Return what has come; raise `OSError` or `ssl.SSLError` if the connection failed."""

    def write(self, parts: Iterable[bytes]) -> None:
        """Send all parts, as fast as the kernel takes them."""

    def sent_ns(self) -> int | None:
        """Return when the last byte written so far had left; None while bytes are unsent."""

    def close(self) -> None:
        """Close the connection, even in the middle of an answer."""


class Channel:
    """Read and write a plain socket without blocking; instants are of the monotonic clock."""

    is_encrypted: Final = False

    def __init__(self, sock: socket.socket, *, clock: StampClock, peer: str) -> None:
        self.file = sock.fileno()
        self.peer = peer
        self._sock = sock
        self.is_stamped = stamp_sent(sock)
        """Whether the kernel stamps this connection."""
        self.unstamped_reads = 0
        """How many reads lack a stamp that can be true; they have the time of our own read."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._source: SocketSource | None = None
        self._unsent: list[memoryview] = []
        self._awaits_room = False
        """Whether the loop tells when the socket takes more."""
        self._heard_ns = 0
        self._written = 0
        self._begun_ns = 0
        self._left_ns: int | None = None
        self._stamped_bytes = -1
        self._stamped_ns = 0

    def read_through(self, source: SocketSource | None) -> None:
        """Receive what *source* has read from now on; None: read the socket."""
        self._source = source
        if source is not None and source.writes:
            self._left_ns = None

    def receive(self) -> Sequence[Read]:
        """Return what has come; raise `OSError` if the connection failed."""
        if self._source is not None:
            return self._taken(self._source)
        try:
            data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            # A stamp of sent bytes wakes the selector just as received bytes do.
            self._take_sent()
            return ()
        now_ns = self._clock.now_ns()
        return (self._stamped(received_ns(ancillary) or 0, now_ns, data),)

    def write(self, parts: Iterable[bytes]) -> None:
        """Send all parts, as fast as the kernel takes them."""
        whole = [part for part in parts if part]
        if len(whole) > MAX_BUFFERS:  # copying is cheaper than several calls of the kernel
            whole = [b"".join(whole)]
        self._unsent += map(memoryview, whole)
        # No answer is older than its request.
        self._begun_ns = self._heard_ns = self._clock.now_ns()
        self._left_ns = None
        self._flush()

    def sent_ns(self) -> int | None:
        """Return when the last byte written so far had left; None while bytes are unsent."""
        if self._left_ns is None:
            return None
        if self.is_stamped and not self.is_sent_stamped:
            self._take_sent()
        return self._stamped_ns if self.is_sent_stamped else self._left_ns

    @property
    def is_sent_stamped(self) -> bool:
        """Whether the kernel stamped the last byte written so far."""
        return self._stamped_bytes == self._written % _OFFSETS

    async def readable(self) -> None:
        """Wait until there may be something to receive."""
        ready = asyncio.Event()
        self._loop.add_reader(self.file, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(self.file)

    def close(self) -> None:
        """Close the connection, even in the middle of an answer."""
        if self._sock.fileno() < 0:
            return
        self._await_room(False)
        self._sock.close()

    def _taken(self, source: SocketSource) -> list[Read]:
        try:
            reads = source.take()
        finally:  # what was sent was sent, even if the connection has failed since
            begun_ns, left_ns, count = source.written
            source.written = 0, 0, 0  # what is noted twice would be counted twice
            self._written += count
            if begun_ns:
                self._begun_ns = self._heard_ns = begun_ns
            if left_ns:
                self._left_ns = left_ns
            if source.sent is not None:
                self._note_sent(*source.sent)
        return [self._stamped(*read) for read in reads]

    def _stamped(self, wall_ns: int, now_ns: int, data: bytes) -> Read:
        """Return bytes that were read at *now_ns* with the instant at which they arrived.

        Their stamp is *wall_ns*; 0: the kernel gave none.
        """
        at_ns = wall_ns - self._clock.offset_ns
        if not self._heard_ns <= at_ns <= now_ns:  # hardly ever
            found_ns = self._plausible(wall_ns, now_ns) if wall_ns else None
            if found_ns is None:
                self.unstamped_reads += 1 if data else 0
                return now_ns, data
            at_ns = found_ns
        self._heard_ns = at_ns
        return at_ns, data

    def _plausible(self, wall_ns: int, now_ns: int) -> int | None:
        return self._clock.between(self._heard_ns, wall_ns, now_ns, begun_ns=self._begun_ns)

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._advance(self._sock.sendmsg(self._unsent[:MAX_BUFFERS]))
        except (BlockingIOError, InterruptedError):
            self._await_room(True)
            return
        except OSError:
            # The read that follows reports the failure; the server may have answered before it
            # closed.
            self._unsent.clear()
        else:
            self._left_ns = self._clock.now_ns()
        self._await_room(False)

    def _await_room(self, wanted: bool) -> None:  # noqa: FBT001
        # Most requests are taken at once: the loop is asked only where they are not.
        if wanted and not self._awaits_room:
            self._loop.add_writer(self.file, self._flush)
        elif self._awaits_room and not wanted:
            self._loop.remove_writer(self.file)
        self._awaits_room = wanted

    def _advance(self, count: int) -> None:
        self._written += count
        while count:
            first = self._unsent[0]
            if count < len(first):
                self._unsent[0] = first[count:]
                return
            count -= len(first)
            del self._unsent[0]

    def _take_sent(self) -> None:
        if not self.is_stamped:
            return
        try:
            stamps = sent_ns(self._sock)
        except OSError:
            return
        for offset, wall_ns in stamps:
            self._note_sent(offset, wall_ns, self._clock.now_ns())

    def _note_sent(self, offset: int, wall_ns: int, now_ns: int) -> None:
        begun_ns = self._begun_ns
        at_ns = self._clock.between(begun_ns, wall_ns, now_ns, begun_ns=begun_ns)
        if at_ns is not None:
            self._stamped_bytes = (offset + 1) % _OFFSETS
            self._stamped_ns = at_ns
