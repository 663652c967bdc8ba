"""Send one request on a connection and read its answer: write, stamp each read, detect the end.

Reads are stamped and queued, and the pump parses them a little later (`pump.DELAY_S`). They are
parsed at once where a caller waits for them: the head, a read that may hold the last chunk, and
every read of a call whose tokens are watched.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentload.dispatch.answer import Parsed
from agentload.dispatch.call import CallMachine, Failure
from agentload.dispatch.fault import redact
from agentload.dispatch.framing import OverlongError
from agentload.live.channel import READ_BYTES, Link, Read, SocketSource
from agentload.live.hub import Watcher
from agentload.live.incoming import Incoming, NotHttpError
from agentload.live.pump import Pump
from agentload.live.raw import MOST_OF_A_CALL
from agentload.live.stamps import StampClock
from agentload.model.commands import Halt

SECOND: Final = 1_000_000_000
# RFC 9110, section 10.1.1: an old server may never send the 100, so do not wait for long.
EXPECT_S: Final = 1.0
# A server that never closes its answer must not hold up the turns that depend on it.
LINGER_S: Final = 1.0
LAST_CHUNK: Final = b"0\r\n\r\n"
# Bytes that may wait to be parsed. Beyond, they are parsed at once, which takes some
# 10 ms, so that a flood of bytes is never queued.
BEHIND_BYTES: Final = 32 << 10
NEVER: Final = 1 << 40
OWN_BYTES: Final = 256 << 10
TOKEN_BYTES: Final = 512  # twice the memory of a token that has a chunk of its own
SHARED_BYTES: Final = 48 << 20
# More than the raw log keeps, so that a secret across the end of what it keeps is found whole.
KEPT_BYTES: Final = MOST_OF_A_CALL + READ_BYTES


class Memory:
    """Limit the memory of the answers in flight.

    Each answer has a share of its own, by the tokens that were asked for; beyond their shares all
    of them draw on one amount together.
    """

    def __init__(self, *, shared_bytes: int = SHARED_BYTES) -> None:
        self.left_bytes = shared_bytes
        """Bytes left of the shared amount; negative when answers have drawn too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What all exchanges of a process share to take answers in."""

    clock: StampClock
    hub: Watcher
    """Reads the sockets."""
    pump: Pump
    """Parses what was read."""
    memory: Memory = field(default_factory=Memory)


def own_bytes(tokens: int | None) -> int:
    """Return the bytes that an answer of up to *tokens* tokens may hold in any case."""
    return OWN_BYTES + TOKEN_BYTES * (tokens or 0)


class Exchange:
    """Follow one answer; `ended` is set when nothing more will come."""

    def __init__(
        self,
        link: Link,
        machine: CallMachine,
        reception: Reception,
        *,
        tokens: int | None = None,
        on_tokens: Callable[[int], None] | None = None,
        kept: list[tuple[int, bytes]] | None = None,
    ) -> None:
        self.answer = Incoming()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_reusable = False
        """Whether the answer ended properly and the connection may carry another request."""
        self._link = link
        self._source: SocketSource | None = None
        """What reads the link's socket; None: the link itself."""
        self._machine = machine
        self._clock = reception.clock
        self._hub = reception.hub
        self._pump = reception.pump
        self._memory = reception.memory
        self._own_bytes = own_bytes(tokens)
        self._borrowed_bytes = 0
        self._asked_tokens = tokens or NEVER
        self._reads_left = self._asked_tokens - 1
        """Estimate of the reads left until the last one is near."""
        self._parsed_reads = 0
        self._on_tokens = on_tokens
        self._loop = asyncio.get_running_loop()
        self._kept = kept
        self._reads: deque[tuple[int, bytes]] = deque()
        self._behind_bytes = 0
        self._kept_bytes = 0
        self._unsent: Sequence[bytes] = ()
        self._deadline: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._tokens = 0
        self._has_begun = False
        self._is_lingering = False
        self._is_eager = True
        self._is_over = False
        """Whether nothing more is done; whoever waits for `ended` may have been cancelled."""

    def start(self, head: bytes, body: Sequence[bytes], *, expects: bool) -> None:
        """Send the request and follow its answer; do nothing if the call was cancelled."""
        if self._is_over:
            return
        if not self._has_written([head] if expects else [head, *body]):
            return
        self._has_begun = True
        if expects:
            self._unsent = body
            self._timers.append(self._loop.call_later(EXPECT_S, self._send_body))
        try:
            source = self._hub.watch(self._link.file, self._readable)
        except (OSError, ValueError) as error:  # no room for one more, or all is closed
            self._fail("reset", f"{type(error).__name__}: {error}")
            return
        self._follow(source)

    def starts_at(self, at_ns: int, head: bytes, body: Sequence[bytes]) -> bool:
        """Hand over the request, to be sent at *at_ns*; return False if only `start` sends it."""
        if self._link.is_encrypted:
            return False
        try:
            source = self._hub.send(self._link.file, self._readable, [head, *body], at_ns)
        except OSError:  # `start` will find that out too, at the call's instant
            return False
        if source is None:
            return False
        self._has_begun = True
        self._follow(source)
        return True

    def _follow(self, source: SocketSource | None) -> None:
        self._source = source
        if source is not None:
            self._link.read_through(source)
            # A source sees an end, and what is no head of a stream, unless all is encrypted.
            self._is_eager = self._link.is_encrypted or self._on_tokens is not None
            # Without a stamp of the kernel, bytes are as late as they are read.
            reads = self._reads_left if self._link.is_stamped else 0
            source.expect(reads, is_eager=self._is_eager)
        self._arm()

    def halt(self, why: Halt) -> None:
        """Give up the call, but for what has come; an answer that ended is judged by its end."""
        if self._has_begun and not self._is_over:
            self._readable()
        self._end(lambda: self._machine.cancel(self._clock.now_ns(), why))

    def release(self) -> None:
        """Give back the shared memory that the answer held, once it is judged."""
        self._memory.left_bytes += self._borrowed_bytes
        self._borrowed_bytes = 0

    @property
    def held_bytes(self) -> int:
        """How many bytes of memory the answer takes."""
        return 0 if self.answer.transcript is None else self.answer.transcript.held_bytes

    def parsed(self) -> Parsed | None:
        """Return what the answer's body says; None if no answer came."""
        try:
            return None if self.answer.transcript is None else self.answer.transcript.parsed()
        # Whatever a server sends, it ends its own call alone
        except Exception as error:  # noqa: BLE001
            return Parsed(unreadable=_why(error))

    # --- what the hub and the pump call ---

    def _readable(self) -> None:
        reads, before = self._reads, len(self._reads)
        try:
            for read in self._link.receive():
                reads.append(read)
                self._behind_bytes += len(read[1])
                if self._kept is not None:
                    self._keep(self._kept, read)
        except (OSError, ssl.SSLError) as error:
            self._fail("reset", f"{type(error).__name__}: {error}")
            return
        if len(reads) == before:
            return
        self._reads_left -= len(reads) - before
        if self._reads_left <= 0 and self._source is None:
            self._hub.hasten(self._link.file)
        last = reads[-1][1]
        if (
            self._is_eager
            or not last
            or last.endswith(LAST_CHUNK)
            or self._behind_bytes > BEHIND_BYTES
            or (self._source is not None and self._source.is_urgent)
        ):
            self.step(len(reads))
        elif not before:
            self._pump.add(self)

    def _keep(self, kept: list[Read], read: Read) -> None:
        if read[1] and self._kept_bytes < KEPT_BYTES:
            kept.append(read)
            self._kept_bytes += len(read[1])

    @property
    def is_behind(self) -> bool:
        """Whether reads are left to parse."""
        return bool(self._reads)

    def step(self, limit: int) -> int:
        """Parse up to *limit* reads; return how many were parsed."""
        reads, answer = self._reads, self.answer
        count = min(limit, len(reads))
        self._parsed_reads += count
        for _ in range(count):
            at_ns, data = reads.popleft()
            if not data:
                self._hung_up(at_ns)
                return count
            try:
                answer.feed(at_ns, data)
            except Exception as error:  # noqa: BLE001  # as in `parsed`
                reads.clear()
                self._fail("unreadable", _why(error))
                return count
            if answer.is_whole:
                if not self._is_within():
                    break
                self._read_out(at_ns)
                return count
        if not reads:
            self._behind_bytes = 0
        if self._is_over:  # the pump drops this exchange when it looks at it once more
            return count
        if self._is_within():
            self._tell()
        else:
            why = (
                f"the answer takes {self.held_bytes >> 10:,} kB, more than answers in flight "
                "may hold together"
            )
            reads.clear()
            # At once, as other answers wait for the memory that this one took
            answer.transcript = None
            self.release()
            self._fail("unreadable", why)
        return count

    def _is_within(self) -> bool:
        """Draw what the answer holds beyond its own share from the shared memory.

        Return whether the shared memory was enough.
        """
        beyond = max(0, self.held_bytes + self._kept_bytes - self._own_bytes)
        self._memory.left_bytes += self._borrowed_bytes - beyond
        self._borrowed_bytes = beyond
        return beyond == 0 or self._memory.left_bytes >= 0

    def _tell(self) -> None:
        # Report how far the answer has come to everybody who waits for that.
        answer, transcript = self.answer, self.answer.transcript
        if answer.is_continued:
            self._send_body()
        if transcript is None:
            return
        if tokens := transcript.tokens_so_far:
            self._reads_left = (
                (self._asked_tokens - tokens) * self._parsed_reads // tokens - len(self._reads) - 1
            )
        # Only a chunked answer shows its end without being parsed; and a watcher wants every token
        # count.
        self._is_eager = not answer.is_chunked or self._on_tokens is not None
        if self._source is not None:
            is_eager = self._is_eager or self._link.is_encrypted
            self._source.expect(self._reads_left, is_eager=is_eager)
        if self._machine.stage == "waiting" and answer.body_ns is not None:
            self._machine.heard(answer.body_ns)
            self._arm()
        if transcript.has_end_mark and not self._is_lingering:
            self._is_lingering = True
            since_s = self._loop.time() if answer.body_ns is None else answer.body_ns / SECOND
            self._timers.append(self._loop.call_at(since_s + LINGER_S, self._end_without_http))
        self._tell_tokens()

    def _tell_tokens(self) -> None:
        transcript = self.answer.transcript
        if self._on_tokens is None or transcript is None:
            return
        if transcript.tokens_so_far != self._tokens:
            self._tokens = transcript.tokens_so_far
            try:
                self._on_tokens(self._tokens)
            except Exception as error:  # noqa: BLE001 (whoever waits for the answer raises it)
                self._finish(error)

    def _send_body(self) -> None:
        body, self._unsent = self._unsent, ()
        if body:
            self._has_written(body)

    def _has_written(self, parts: Sequence[bytes]) -> bool:
        try:
            self._link.write(parts)
        except OSError as error:  # raised by TLS only; a plain socket reports it on its next read
            self._fail("reset", f"{type(error).__name__}: {error}")
            return False
        return True

    # --- limits ---

    def _arm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        deadline_ns = self._machine.deadline_ns()
        if deadline_ns is not None:
            self._deadline = self._loop.call_at(deadline_ns / SECOND, self._strike)

    def _strike(self) -> None:
        # What arrived in time counts, even if it has not been read yet.
        self._readable()
        self._catch_up()
        if self._is_over:
            return
        if self._machine.expired(self._clock.now_ns()):
            self._finish()
        else:
            self._arm()

    # --- ends ---

    def _read_out(self, at_ns: int) -> None:
        # Bytes read after the answer's end close the connection with them:
        # the next call on it must not take them for its own answer.
        self.is_reusable = (
            self.answer.is_clean
            and not self._reads
            and not self._unsent
            and self._link.sent_ns() is not None
        )
        self._tell_tokens()
        self._note()
        if not self.answer.is_redirect:
            self._machine.closed(at_ns)
        self._finish()

    def _hung_up(self, at_ns: int) -> None:
        if self.answer.hung_up():
            self._read_out(at_ns)
            return
        self._note()
        self._machine.cut(at_ns)
        self._finish()

    def _fail(self, failure: Failure, error: str) -> None:
        self._end(lambda: self._machine.failed(self._clock.now_ns(), failure, error))

    def _has_more(self) -> bool:
        """Return whether bytes were read behind the answer's end, or the connection has failed."""
        try:
            return any(True for _ in self._link.receive())
        except (OSError, ssl.SSLError):
            return True

    def _end_without_http(self) -> None:
        self._readable()
        self._end(lambda: self._machine.closed(self._clock.now_ns()))

    def _end(self, tell: Callable[[], None]) -> None:
        self._catch_up()
        if not self._is_over:
            tell()
            self._finish()

    def _catch_up(self) -> None:
        if self._reads:
            self.step(len(self._reads))
        self._note()

    def _note(self) -> None:
        if self.answer.status is not None:
            self._machine.head(self.answer.status)
        if self.answer.body_ns is not None:
            self._machine.heard(self.answer.body_ns)

    def _finish(self, mistake: Exception | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._reads.clear()
        for timer in (self._deadline, *self._timers):
            if timer is not None:
                timer.cancel()
        if self._has_begun:
            self._hub.leave(self._link.file)
            if self._source is not None:
                self.is_reusable = not self._has_more() and self.is_reusable
                self._link.read_through(None)
            sent_ns = self._link.sent_ns()
            if sent_ns is not None and not self._unsent:
                self._machine.sent(sent_ns)
        self.answer.close()
        if self.ended.done():
            return
        if mistake is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(mistake)


def _why(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, (NotHttpError, OverlongError))
        else f"{type(error).__name__}: {redact(str(error))}"
    )
