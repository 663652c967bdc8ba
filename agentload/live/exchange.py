"""One request and its answer on a connection: write, stamp what comes back, notice the end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final

import httptools

from agentload.live.channel import Link
from agentload.live.clock import Clock
from agentload.live.transcript import Transcript
from agentload.replay.call import CallMachine, Failure, Halt

SECOND: Final = 1_000_000_000
EXPECT_S: Final = 1.0  # RFC 9110, section 10.1.1: do not wait for a 100 that an old server never sends
LINGER_S: Final = 1.0  # a server that never closes its answer must not hold up the turns that depend on it
REDIRECTS: Final = frozenset({307, 308})  # those that keep method and body


class Exchange:
    """Follow one answer; `ended` is set when nothing more will come."""

    def __init__(self, link: Link, machine: CallMachine, transcript: Transcript, *, clock: Clock) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_reusable = False
        """The answer ended as it should and the connection may carry another request."""
        self.is_read_out = False
        """The whole answer came."""
        self._link = link
        self._machine = machine
        self._transcript = transcript
        transcript.on_end_mark = self.said_all
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._unsent: Sequence[bytes] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._continue: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._at_ns = 0
        self._body_ns: int | None = None
        self._is_framed = False
        self._is_clean = True

    def start(self, head: bytes, body: Sequence[bytes], *, expects: bool) -> None:
        """Send the request and follow its answer."""
        if expects:
            self._unsent = body
            self._link.write([head])
            self._continue = self._loop.call_later(EXPECT_S, self._send_body)
        else:
            self._link.write([head, *body])
        self._loop.add_reader(self._link.sock, self._readable)
        self._arm()

    def halt(self, why: Halt) -> None:
        """Give the call up."""
        self._catch_up()
        self._machine.cancel(self._clock.now_ns(), why)
        self._finish()

    @property
    def is_redirected(self) -> bool:
        """Tell whether the whole answer is that the request belongs elsewhere."""
        return self.is_read_out and self.status in REDIRECTS

    def said_all(self) -> None:
        """Note that the body named its own end; wait a little for HTTP to agree, then end without it."""
        if not self.ended.done() and self._linger is None:
            self._linger = self._loop.call_later(LINGER_S, self._end_without_http)

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
        self._is_framed = "content-length" in named or "chunked" in named.get("transfer-encoding", "") or status in {204, 304}
        self._machine.head(status)
        self._transcript.head(status, named.get("content-type", ""))

    def on_body(self, data: bytes) -> None:
        """Keep the next bytes of the body with the stamp of the read that brought them."""
        if self.is_read_out or self.status in REDIRECTS:
            return
        self._body_ns = self._at_ns
        if self._machine.stage == "waiting":
            self._machine.heard(self._at_ns)
            self._arm()
        self._transcript.append(self._at_ns, data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, or send the body that a 100 asked for."""
        if self.status is not None:
            self._is_clean = self._is_clean and self._parser.should_keep_alive()
            self.is_read_out = True
        else:
            self._send_body()

    # --- what the loop calls ---

    def _readable(self) -> None:
        try:
            got = self._link.receive()
        except (OSError, ssl.SSLError) as error:
            self._fail("reset", f"{type(error).__name__}: {error}")
            return
        if got is None:
            return
        self._at_ns, data = got
        if not data:
            self._hung_up()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_clean = False
            if not self.is_read_out:
                self._fail("unreadable", f"this is not HTTP: {error}")
                return
        if self.is_read_out:
            self._read_out()

    def _read_out(self) -> None:
        self.is_reusable = self._is_clean and self._link.sent_ns() is not None
        if not self.is_redirected:
            self._catch_up()
            self._machine.closed(self._at_ns)
        self._finish()

    def _hung_up(self) -> None:
        if self.status is not None and not self._is_framed:
            self.is_read_out = True  # such an answer ends with its connection (RFC 9112, section 6.3)
            self._is_clean = False
            self._read_out()
            return
        self._catch_up()
        self._machine.cut(self._at_ns)
        self._finish()

    def _fail(self, failure: Failure, error: str) -> None:
        self._catch_up()
        self._machine.failed(self._clock.now_ns(), failure, error)
        self._finish()

    def _end_without_http(self) -> None:
        self._catch_up()
        self._machine.closed(self._clock.now_ns())
        self._finish()

    def _send_body(self) -> None:
        body, self._unsent = self._unsent, ()
        if body:
            self._link.write(body)

    # --- limits ---

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ns = self._machine.deadline_ns()
        if deadline_ns is not None:
            self._timer = self._loop.call_at(deadline_ns / SECOND, self._strike)

    def _strike(self) -> None:
        # What has arrived in time counts, even if nobody has looked yet.
        self._readable()
        if self.ended.done():
            return
        self._catch_up()
        if self._machine.expired(self._clock.now_ns()):
            self._finish()
        else:
            self._arm()

    def _catch_up(self) -> None:
        if self._body_ns is not None:
            self._machine.heard(self._body_ns)

    def _finish(self) -> None:
        if self.ended.done():
            return
        for timer in (self._timer, self._continue, self._linger):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._link.sock)
        sent_ns = self._link.sent_ns()
        if sent_ns is not None and not self._unsent:
            self._machine.sent(sent_ns)
        self._transcript.on_end_mark = None
        self._transcript.end()
        self.ended.set_result(None)
        # The parser holds us as we hold it: a million calls must not wait for the collector of cycles.
        del self._parser
