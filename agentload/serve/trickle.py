"""Send bytes one by one, slowly: what a reader meets behind a broken network or a malicious peer."""

from __future__ import annotations

import asyncio

from agentload.serve.stream import Outlet

# The event loop cannot wait for less; several bytes leave together where they are due more often.
_TICK_S = 0.001


class Trickle:
    """Stand between a stream and its transport."""

    def __init__(self, transport: Outlet, *, byte_s: float) -> None:
        self._transport = transport
        self._byte_s = byte_s
        self._waiting = bytearray()
        self._loop = asyncio.get_running_loop()
        self._due_s = 0.0
        """When the next byte may leave."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes."""
        if not self._waiting:
            self._due_s = self._loop.time() + self._byte_s
            self._loop.call_at(self._due_s, self._drip)
        self._waiting += data

    def get_write_buffer_size(self) -> int:
        """Return how many bytes have not left."""
        return len(self._waiting) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Tell whether nobody reads any more."""
        return self._transport.is_closing()

    def _drip(self) -> None:
        if self._transport.is_closing():
            self._waiting.clear()
            return
        late_s = max(0.0, self._loop.time() - self._due_s)
        count = 1 + int(late_s / self._byte_s) if self._byte_s else len(self._waiting)
        self._transport.write(bytes(self._waiting[:count]))
        del self._waiting[:count]
        if self._waiting:
            self._due_s += count * self._byte_s
            self._loop.call_at(max(self._due_s, self._loop.time() + _TICK_S), self._drip)
