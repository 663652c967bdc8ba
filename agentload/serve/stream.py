"""Send one streamed answer: whole steps at a time, straight to the transport, never more than the reader takes.

vLLM's output collector merges the tokens of a client that lags behind into one chunk; so does this: while the kernel still
holds bytes back, tokens wait here, and the next chunk carries them all. A slow reader costs a comparison a step and no memory.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from agentload.serve.truth import Log
from agentload.serve.wire import Face, chunk

# How often the end of a stream looks whether its lagging reader has caught up.
_RETRY_S = 0.005


class Outlet(Protocol):
    """Take bytes: asyncio's transport, or one that is slow on purpose."""

    def write(self, data: bytes, /) -> None:
        """Take bytes, all of them, now or later."""
        ...

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        ...

    def is_closing(self) -> bool:
        """Tell whether nobody reads any more."""
        ...


async def taken(outlet: Outlet) -> None:
    """Return when the kernel has taken everything, or when the reader has gone."""
    while outlet.get_write_buffer_size() and not outlet.is_closing():  # noqa: ASYNC110 - aiohttp keeps the transport's own event
        await asyncio.sleep(_RETRY_S)


class Stream:
    """Carry the tokens of one answer to its reader."""

    __slots__ = (
        "_cached_tokens",
        "_face",
        "_has_ended",
        "_is_chunked",
        "_limit",
        "_log",
        "_outlet",
        "_planned_ns",
        "_sent",
        "_total",
        "ready",
    )

    def __init__(self, face: Face, outlet: Outlet, log: Log, *, tokens: int, is_chunked: bool) -> None:
        self._face = face
        self._outlet = outlet
        self._log = log
        self._total = self._limit = tokens
        self._is_chunked = is_chunked
        self._sent = 0
        self._planned_ns = 0
        self._cached_tokens = 0
        self._has_ended = False
        self.ready = 0
        """How many tokens the engine has emitted."""

    def start(self, cached_tokens: int) -> None:
        """Note what the prefix cache held; the first token follows."""
        self._cached_tokens = cached_tokens

    def offer(self, ready: int, planned_ns: int) -> None:
        """Send the tokens up to `ready`, which the engine had at `planned_ns`, unless the reader lags behind."""
        self.ready, self._planned_ns = ready, planned_ns
        self._push()

    def hold(self, tokens: int) -> None:
        """Send no more than so many tokens until told otherwise."""
        self._limit = min(tokens, self._total)

    def give_up(self) -> None:
        """Note that no more tokens will come."""
        self._has_ended = True

    async def reach(self, tokens: int) -> bool:
        """Send so many tokens and hold the rest; return when the kernel has taken them, or that they will never be."""
        self.hold(tokens)
        while not self._has_ended and not self._outlet.is_closing():
            self._push()
            if self._sent >= self._limit and not self._outlet.get_write_buffer_size():
                return True
            await asyncio.sleep(_RETRY_S)
        return False

    async def finish(self) -> None:
        """Send what a lagging reader had no room for; return when the kernel has taken everything, or when the reader has gone."""
        await self.reach(self._total)

    async def tell(self, *payloads: bytes) -> None:
        """Send events that are not of the answer."""
        self._outlet.write(b"".join(map(self._framed, payloads)))
        await taken(self._outlet)

    def _push(self) -> None:
        if self._sent < self.ready and self._sent < self._limit and not self._outlet.get_write_buffer_size():
            self._send(min(self.ready, self._limit))

    def _send(self, stop: int) -> None:
        face, log, first = self._face, self._log, self._sent
        payload = self._framed(face.tokens(first, stop))
        if first == 0 and (opening := face.opening()):
            payload = self._framed(opening) + payload
        if stop == self._total:
            payload += b"".join(map(self._framed, face.closing(self._cached_tokens)))
        before = time.monotonic_ns()
        self._outlet.write(payload)
        after = time.monotonic_ns()
        self._sent = stop
        log.planned_ns.append(self._planned_ns)
        log.before_ns.append(before)
        log.after_ns.append(after)
        log.tokens.append(stop - first)
        if self._outlet.get_write_buffer_size():
            log.behind += 1

    def _framed(self, payload: bytes) -> bytes:
        return chunk(payload) if self._is_chunked else payload
