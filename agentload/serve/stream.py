"""Send one streamed answer: whole steps at a time, straight to the transport, never more than the reader takes.

vLLM's output collector merges the tokens of a client that lags behind into one chunk; so does this: while the kernel still
holds bytes back, tokens wait here, and the next chunk carries them all. A slow reader costs a comparison a step and no memory.
"""

from __future__ import annotations

import asyncio
import time

from agentload.serve.truth import Log
from agentload.serve.wire import Face, chunk

# How often the end of a stream looks whether its lagging reader has caught up.
_RETRY_S = 0.005


class Stream:
    """Carry the tokens of one answer to its transport."""

    __slots__ = ("_cached_tokens", "_face", "_is_chunked", "_log", "_planned_ns", "_sent", "_total", "_transport", "ready")

    def __init__(self, face: Face, transport: asyncio.WriteTransport, log: Log, *, tokens: int, is_chunked: bool) -> None:
        self._face = face
        self._transport = transport
        self._log = log
        self._total = tokens
        self._is_chunked = is_chunked
        self._sent = 0
        self._planned_ns = 0
        self._cached_tokens = 0
        self.ready = 0
        """How many tokens the engine has emitted."""

    @property
    def is_behind(self) -> bool:
        """Tell whether tokens wait for the reader."""
        return self._sent < self.ready

    def start(self, cached_tokens: int) -> None:
        """Note what the prefix cache held; the first token follows."""
        self._cached_tokens = cached_tokens

    def offer(self, ready: int, planned_ns: int) -> None:
        """Send the tokens up to `ready`, which the engine had at `planned_ns`, unless the reader lags behind."""
        self.ready, self._planned_ns = ready, planned_ns
        self.push()

    def push(self) -> None:
        """Send what waits, if the kernel has taken all that went before."""
        if self._sent < self.ready and not self._transport.get_write_buffer_size():
            self._send()

    async def finish(self) -> None:
        """Send what a lagging reader had no room for; return when the kernel has taken everything, or the reader has gone."""
        while not self._transport.is_closing():
            self.push()
            if not self.is_behind and not self._transport.get_write_buffer_size():
                return
            await asyncio.sleep(_RETRY_S)

    def _send(self) -> None:
        face, log, first, stop = self._face, self._log, self._sent, self.ready
        payload = self._framed(face.tokens(first, stop))
        if first == 0 and (opening := face.opening()):
            payload = self._framed(opening) + payload
        if stop == self._total:
            payload += b"".join(map(self._framed, face.closing(self._cached_tokens)))
        before = time.monotonic_ns()
        self._transport.write(payload)
        after = time.monotonic_ns()
        self._sent = stop
        log.planned_ns.append(self._planned_ns)
        log.before_ns.append(before)
        log.after_ns.append(after)
        log.tokens.append(stop - first)
        if self._transport.get_write_buffer_size():
            log.behind += 1

    def _framed(self, payload: bytes) -> bytes:
        return chunk(payload) if self._is_chunked else payload
