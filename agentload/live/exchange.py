"""One request and its answer on a connection: write, stamp what comes back, notice the end.

What arrives is stamped and laid aside, and parsed by the pump a few ms later. Where somebody waits, it is parsed at once: the head, what
may be the last chunk, everything of a call that is watched.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import httptools

from agentload.live.channel import Link
from agentload.live.clock import Clock
from agentload.live.hub import Hub
from agentload.live.pump import Pump
from agentload.live.transcript import Transcript
from agentload.replay.call import CallMachine, Failure, Halt
from agentload.replay.sse import Parsed

SECOND: Final = 1_000_000_000
EXPECT_S: Final = 1.0  # RFC 9110, section 10.1.1: do not wait for a 100 that an old server never sends
LINGER_S: Final = 1.0  # a server that never closes its answer must not hold up the turns that depend on it
REDIRECTS: Final = frozenset({307, 308})  # those that keep method and body
LAST_CHUNK: Final = b"0\r\n\r\n"


class Exchange:
    """Follow one answer; `ended` is set when nothing more will come."""

    def __init__(
        self, link: Link, machine: CallMachine, *, clock: Clock, hub: Hub, pump: Pump, on_tokens: Callable[[int], None] | None = None
    ) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_reusable = False
        """The answer ended as it should and the connection may carry another request."""
        self.is_read_out = False
        """The whole answer came."""
        self._link = link
        self._machine = machine
        self._clock = clock
        self._hub = hub
        self._pump = pump
        self._on_tokens = on_tokens
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transcript: Transcript | None = None
        self._reads: deque[tuple[int, bytes]] = deque()
        self._unsent: Sequence[bytes] = ()
        self._deadline: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._at_ns = 0
        self._body_ns: int | None = None
        self._tokens = 0
        self._is_framed = False
        self._is_clean = True
        self._is_lingering = False
        self._is_eager = True

    def start(self, head: bytes, body: Sequence[bytes], *, expects: bool) -> None:
        """Send the request and follow its answer."""
        if expects:
            self._unsent = body
            self._link.write([head])
            self._timers.append(self._loop.call_later(EXPECT_S, self._send_body))
        else:
            self._link.write([head, *body])
        self._hub.watch(self._link.file, self._readable)
        self._arm()

    def halt(self, why: Halt) -> None:
        """Give the call up."""
        self._end(lambda: self._machine.cancel(self._clock.now_ns(), why))

    @property
    def is_redirected(self) -> bool:
        """Tell whether the whole answer is that the request belongs elsewhere."""
        return self.is_read_out and self.status in REDIRECTS

    def parsed(self) -> Parsed | None:
        """Return what the answer's body says, if there was any."""
        return None if self._transcript is None else self._transcript.parsed()

    # --- what the pump calls ---

    @property
    def is_behind(self) -> bool:
        """Tell whether reads are left to parse."""
        return bool(self._reads)

    def step(self, limit: int) -> int:
        """Parse up to so many reads and return how many it were."""
        reads = self._reads
        count = min(limit, len(reads))
        for _ in range(count):
            self._at_ns, data = reads.popleft()
            if not data:
                self._hung_up()
                return count
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserCallbackError as error:
                self._crash(error)
                return count
            except httptools.HttpParserError as error:
                self._is_clean = False
                if not self.is_read_out:
                    self._fail("unreadable", f"this is not HTTP: {error}")
                    return count
            if self.is_read_out:
                self._read_out()
                return count
        self._tell()
        return count

    # --- what the HTTP parser calls ---

    def on_message_begin(self) -> None:
        """Note bytes that follow the whole answer: nobody asked for them."""
        if self.is_read_out:
            self._is_clean = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the answer."""
        if not self.is_read_out:
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Note the head, unless it is an interim one."""
        if self.is_read_out:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        named = dict(self.headers)
        is_chunked = "chunked" in named.get("transfer-encoding", "")
        self._is_framed = is_chunked or "content-length" in named or status in {204, 304}
        self._machine.head(status)
        self._transcript = Transcript(
            status, content_type=named.get("content-type", ""), encoding=named.get("content-encoding", "identity")
        )
        # Only chunks show their end to a glance; and who watches wants to see each.
        self._is_eager = not is_chunked or self._on_tokens is not None

    def on_body(self, data: bytes) -> None:
        """Read the next bytes of the body with the stamp of the read that brought them."""
        if self.is_read_out or self.status in REDIRECTS or self._transcript is None:
            return
        if self._body_ns is None:
            self._machine.heard(self._at_ns)
            self._arm()
        self._body_ns = self._at_ns
        self._transcript.feed(self._at_ns, data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, or send the body that a 100 asked for."""
        if self.status is None:
            self._send_body()
        elif not self.is_read_out:
            self._is_clean = self._is_clean and self._parser.should_keep_alive()
            self.is_read_out = True

    # --- what the loop calls ---

    def _readable(self) -> None:
        try:
            got = self._link.receive()
        except (OSError, ssl.SSLError) as error:
            self._fail("reset", f"{type(error).__name__}: {error}")
            return
        if got is None:
            return
        self._reads.append(got)
        if self._is_eager or not got[1] or got[1].endswith(LAST_CHUNK):
            self.step(len(self._reads))
        elif len(self._reads) == 1:
            self._pump.add(self)

    def _tell(self) -> None:
        # Say how far the answer has come, to whom it may concern.
        if self._transcript is None:
            return
        if self._transcript.has_end_mark and not self._is_lingering:
            self._is_lingering = True
            self._timers.append(self._loop.call_later(LINGER_S, self._end_without_http))
        if self._on_tokens is not None and self._transcript.tokens_so_far != self._tokens:
            self._tokens = self._transcript.tokens_so_far
            self._on_tokens(self._tokens)

    def _send_body(self) -> None:
        body, self._unsent = self._unsent, ()
        if body:
            self._link.write(body)

    # --- limits ---

    def _arm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        deadline_ns = self._machine.deadline_ns()
        if deadline_ns is not None:
            self._deadline = self._loop.call_at(deadline_ns / SECOND, self._strike)

    def _strike(self) -> None:
        # What has arrived in time counts, even if nobody has looked yet.
        self._readable()
        self._catch_up()
        if self.ended.done():
            return
        if self._machine.expired(self._clock.now_ns()):
            self._finish()
        else:
            self._arm()

    # --- ends ---

    def _read_out(self) -> None:
        self.is_reusable = self._is_clean and self._link.sent_ns() is not None
        self._tell()
        self._note_body()
        if not self.is_redirected:
            self._machine.closed(self._at_ns)
        self._finish()

    def _hung_up(self) -> None:
        if self.status is not None and not self._is_framed:
            self.is_read_out = True  # such an answer ends with its connection (RFC 9112, section 6.3)
            self._is_clean = False
            self._read_out()
            return
        self._note_body()
        self._machine.cut(self._at_ns)
        self._finish()

    def _fail(self, failure: Failure, error: str) -> None:
        self._end(lambda: self._machine.failed(self._clock.now_ns(), failure, error))

    def _end_without_http(self) -> None:
        self._end(lambda: self._machine.closed(self._clock.now_ns()))

    def _end(self, tell: Callable[[], None]) -> None:
        self._catch_up()
        if not self.ended.done():
            tell()
            self._finish()

    def _catch_up(self) -> None:
        if self._reads:
            self.step(len(self._reads))
        self._note_body()

    def _note_body(self) -> None:
        if self._body_ns is not None:
            self._machine.heard(self._body_ns)

    def _crash(self, error: BaseException) -> None:
        # A mistake of ours inside the parser's call: whoever waits for the answer raises it.
        self._finish(error.__context__ or error)

    def _finish(self, mistake: BaseException | None = None) -> None:
        if self.ended.done():
            return
        self._reads.clear()
        for timer in (self._deadline, *self._timers):
            if timer is not None:
                timer.cancel()
        self._hub.leave(self._link.file)
        sent_ns = self._link.sent_ns()
        if sent_ns is not None and not self._unsent:
            self._machine.sent(sent_ns)
        # The parser holds us as we hold it: a million calls must not wait for the collector of cycles.
        del self._parser
        if mistake is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(mistake)
