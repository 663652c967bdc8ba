"""Send one streamed answer, whole steps at a time, and log what really happened on the wire.

Bytes go straight to the transport, and never more than the reader takes. There is one event per
emission of the engine, even where our own event loop was late and several leave in one
write: that lateness is not the emulated server's. A reader that lags is another matter: vLLM's
output collector merges the tokens that such a client has yet to take into one chunk, and so does
this. Meanwhile the tokens wait here, so a slow reader costs a comparison a step and no memory.

The log ("truth") is what measurements are tested against: one JSON line a request, after
a header line with the clock's anchors. All stamps are ns of the
monotonic clock of this process. `planned_ns` is when the engine had the chunk's last
token; `before_ns` and `after_ns` were read right before and right after the bytes were
handed to the kernel; `tokens` is what the chunk carried. `behind` counts writes of
which the kernel did not take all bytes at once: their rest left later than `after_ns`.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from agentload.serve.faces import Face, chunk


@dataclass(slots=True, kw_only=True)
class Log:
    """Collect what really happened to one request."""

    request_id: str
    arrived_ns: int
    """When the last byte of the request had been read."""
    submitted_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    planned_ns: "array[int]" = field(default_factory=lambda: array("q"))
    before_ns: "array[int]" = field(default_factory=lambda: array("q"))
    after_ns: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("H"))
    behind: int = 0
    fault: str | None = None
    end: str | None = None
    """How the request ended.

    `done`; `refused`; `left`: the connection ended before the answer did; `broken`: by a fault, or
    because the engine died.
    """
    ended_ns: int | None = None


class Truth:
    """Write logs to a file, one per turn of the event loop.

    Many requests that end at once therefore do not stall the other streams.
    """

    def __init__(self, path: Path, *, arm: str, speed: float) -> None:
        self._file: BinaryIO = path.open("wb")
        self._waiting: deque[Log] = deque()
        anchors = {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        self._write(
            {"kind": "agentload-truth", "version": 1, "arm": arm, "speed": speed, **anchors}
        )

    def add(self, log: Log) -> None:
        """Add a finished log, which `write_one` will write."""
        self._waiting.append(log)

    def write_one(self) -> bool:
        """Write one waiting log; return whether others wait."""
        if self._waiting:
            self._write(self._waiting.popleft())
        return bool(self._waiting)

    def close(self) -> None:
        """Write all waiting logs and close the file."""
        while self.write_one():
            pass
        self._file.close()

    def _write(self, value: object) -> None:
        self._file.write(msgspec.json.encode(value, enc_hook=list) + b"\n")
        self._file.flush()


# How often a stream looks whether its lagging reader has caught up.
_RETRY_S = 0.005


class Outlet(Protocol):
    """Describe where bytes go: asyncio's transport, or one that is slow on purpose."""

    def write(self, data: bytes, /) -> None:
        """Take all bytes, and send them now or later."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        ...

    def is_closing(self) -> bool:
        """Tell whether the reader is gone."""
        ...


async def drain(outlet: Outlet) -> None:
    """Return when the kernel has taken everything, or when the reader has gone."""
    # aiohttp keeps the transport's own event to itself
    while outlet.get_write_buffer_size() and not outlet.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(_RETRY_S)


@dataclass(slots=True, eq=False)
class Stream:
    """Send the tokens of one answer to its reader."""

    face: Face
    outlet: Outlet
    log: Log
    _: KW_ONLY
    tokens: int
    is_chunked: bool
    emissions: int = 0
    """How many emissions of the engine have been offered."""
    _limit: int = 0
    _cached_tokens: int = 0
    _has_ended: bool = False
    _sent: int = 0
    _ready: int = 0
    """Tokens offered so far; the last of them was planned for `_planned_ns`."""
    _planned_ns: int = 0

    def __post_init__(self) -> None:
        self._limit = self.tokens

    def start(self, cached_tokens: int) -> None:
        """Note how many prompt tokens the prefix cache held; the first token follows."""
        self._cached_tokens = cached_tokens

    def offer(self, planned_ns: Sequence[int], tokens: Sequence[int]) -> None:
        """Send the engine's next emissions, unless the reader lags behind.

        *tokens* are the tokens of each emission, *planned_ns* the instants.
        """
        if not tokens:
            self._push()
            return
        self.emissions += len(tokens)
        sent, ready = self._sent, self._ready
        self._planned_ns = planned_ns[-1]
        self._ready = ready + sum(tokens)
        if self.outlet.get_write_buffer_size():
            return
        if sent < ready:
            self._push()
            return
        self._send(zip((ready + total for total in accumulate(tokens)), planned_ns, strict=True))

    def hold(self, tokens: int) -> None:
        """Send no more than *tokens* tokens until the limit is raised."""
        self._limit = min(tokens, self.tokens)

    def give_up(self) -> None:
        """Note that no more tokens will come."""
        self._has_ended = True

    async def reach(self, tokens: int) -> bool:
        """Send up to *tokens* tokens and hold the rest.

        Return True when the kernel has taken them, False if they can no longer be sent.
        """
        self.hold(tokens)
        while not self._has_ended and not self.outlet.is_closing():
            self._push()
            if self._sent >= self._limit and not self.outlet.get_write_buffer_size():
                return True
            await asyncio.sleep(_RETRY_S)
        return False

    async def finish(self) -> None:
        """Send what a lagging reader had no room for.

        Return when the kernel has taken everything, or when the reader has gone.
        """
        await self.reach(self.tokens)

    async def tell(self, *payloads: bytes) -> None:
        """Send events that are no part of the answer."""
        self.outlet.write(b"".join(map(self._framed, payloads)))
        await drain(self.outlet)

    def _push(self) -> None:
        if self._sent < self._ready and not self.outlet.get_write_buffer_size():
            self._send(((self._ready, self._planned_ns),))

    def _send(self, ends: Iterable[tuple[int, int]]) -> None:
        """Send in one write one event up to each of these token counts.

        Each count comes with the instant at which the engine had its last token.
        """
        face, log, outlet = self.face, self.log, self.outlet
        payload = b""
        events = 0
        for end, planned_ns in ends:
            first = self._sent
            stop = min(end, self._limit)
            if stop <= first:
                break
            if first == 0 and (opening := face.opening()):
                payload = self._framed(opening)
            payload += self._framed(face.tokens(first, stop))
            log.planned_ns.append(planned_ns)
            log.tokens.append(stop - first)
            self._sent = stop
            events += 1
        if not events:
            return
        if self._sent == self.tokens:
            payload += b"".join(map(self._framed, face.closing(self._cached_tokens)))
        before = time.monotonic_ns()
        outlet.write(payload)
        after = time.monotonic_ns()
        for _ in range(events):
            log.before_ns.append(before)
            log.after_ns.append(after)
        if outlet.get_write_buffer_size():
            log.behind += 1

    def _framed(self, payload: bytes) -> bytes:
        return chunk(payload) if self.is_chunked else payload
