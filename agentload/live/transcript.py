"""Parse streams right behind their arrival, when nothing else is waiting.

A burst (every stream of a batch gets its token in the same step) is first read whole, which stamps it and keeps requests on time; the
parser works off the backlog in slices between two looks at the sockets. Memory stays bounded, and the end of a stream finds it parsed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from agentload.replay.fault import body_fault
from agentload.replay.sse import Parsed, StreamParser, answer

SLICE: Final = 16  # reads: some 50 µs
SHARE: Final = 8  # of a backlog that grows faster than slices work it off
BODY_BYTES: Final = 64 << 20  # of an answer that is not a stream

Form: TypeAlias = Literal["stream", "answer", "fault", "other"]


class Transcript:
    """The body of one answer: what arrived when, and what it says."""

    def __init__(self, pump: Pump, *, on_tokens: Callable[[int], None] | None = None) -> None:
        self.parsed: asyncio.Future[Parsed] = asyncio.get_running_loop().create_future()
        """What the answer said, once it has ended."""
        self.on_end_mark: Callable[[], None] | None = None
        """Called once, when the stream has said `[DONE]`."""
        self.is_queued = False
        self._pump = pump
        self._on_tokens = on_tokens
        self._form: Form = "stream"
        self._content_type = ""
        self._reads: deque[tuple[int, bytes]] = deque()
        self._parser = StreamParser()
        self._body = bytearray()
        self._last_ns = 0
        self._has_ended = False

    def head(self, status: int, content_type: str) -> None:
        """Choose how to read the body."""
        self._content_type = content_type
        if status >= 300:
            self._form = "fault"
        elif "json" in content_type:
            self._form = "answer"
        elif content_type and "event-stream" not in content_type:
            self._form = "other"

    def append(self, at_ns: int, data: bytes) -> None:
        """Take the next bytes."""
        self._reads.append((at_ns, data))
        if not self.is_queued:
            self.is_queued = True
            self._pump.add(self)

    def end(self) -> None:
        """Take no more bytes: `parsed` follows."""
        self._has_ended = True
        self._pump.add_first(self)

    def step(self, limit: int) -> int:
        """Parse up to so many reads and return how many it were."""
        reads = self._reads
        count = min(limit, len(reads))
        before = self._parser.tokens_so_far
        for _ in range(count):
            at_ns, data = reads.popleft()
            self._last_ns = at_ns
            if self._form == "stream":
                self._parser.feed(at_ns, data)
            elif len(self._body) < BODY_BYTES:
                self._body += data
        if self._on_tokens is not None and self._parser.tokens_so_far != before:
            self._on_tokens(self._parser.tokens_so_far)
        if self.on_end_mark is not None and self._parser.has_end_mark:
            self.on_end_mark()
            self.on_end_mark = None
        return count

    @property
    def is_read(self) -> bool:
        """Tell whether nothing is left to parse."""
        return not self._reads

    def settle(self) -> None:
        """Resolve `parsed` when the answer has ended and is read."""
        if self._has_ended and not self._reads and not self.parsed.done():
            self.parsed.set_result(self._result())

    def _result(self) -> Parsed:
        match self._form:
            case "stream":
                return self._parser.end(self._last_ns)
            case "answer":
                return answer(bytes(self._body))
            case "fault":
                return Parsed(fault=body_fault(bytes(self._body))) if self._body else Parsed()
            case "other":
                return Parsed(unreadable=f"the answer is of type '{self._content_type}'")


class Pump:
    """Work off the backlog of all transcripts, a slice each turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Transcript] = deque()
        self._is_scheduled = False

    def add(self, transcript: Transcript) -> None:
        """Parse what has arrived for this transcript when its turn comes."""
        self._queue.append(transcript)
        self._schedule()

    def add_first(self, transcript: Transcript) -> None:
        """Parse the rest of a transcript that has ended: somebody waits for it."""
        transcript.is_queued = True
        self._queue.appendleft(transcript)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        left = max(SLICE, len(self._queue) // SHARE)
        while self._queue and left > 0:
            transcript = self._queue[0]
            try:
                # An empty step costs a little too: every entry counts.
                left -= max(1, transcript.step(left))
                transcript.settle()
            except Exception as error:  # noqa: BLE001 (whoever waits for the transcript raises it)
                self._queue.popleft()
                if not transcript.parsed.done():
                    transcript.parsed.set_exception(error)
                continue
            if transcript.is_read:
                transcript.is_queued = False
                self._queue.popleft()
        if self._queue:
            self._schedule()
