"""Keep a server of ours up: started when it is needed first, and again when it has died."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import Running, is_healthy, start
from agentload.endpoints.urls import masked
from agentload.errors import EndpointError

TELLING: Final = ("out of memory", "outofmemory", "error", "fatal", "killed")
"""What the line of a log that says why a server died may hold, the surest first."""
END_BYTES: Final = 64 * 1024
DYING_S: Final = 10.0  # an API server outlives its engine by some seconds


class Kept:
    """A server of ours; `kept` ends it for certain."""

    def __init__(self, endpoint: Endpoint, *, logs: Path, start_s: float) -> None:
        self._endpoint = endpoint
        self._logs = logs
        self._start_s = start_s
        self._running: Running | None = None
        self._starts = 0

    def up(self) -> None:
        """Have the server run: one that died is started again."""
        if self._running is not None and self._lives(self._running):
            return
        self.stop()  # an API server may outlive its engines, and they it
        self._starts += 1
        self._running = start(self._endpoint, logs=self._logs / f"start-{self._starts:03}", start_s=self._start_s)

    def last_words(self) -> str | None:
        """Return how the server died and what its log says of that; None while it lives."""
        if self._running is None or self._lives(self._running):
            return None
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = self._running.process.wait(DYING_S)
        ended = "not healthy any more" if code is None else f"ended with code {code}"
        with self._running.log.open("rb") as log:
            log.seek(max(0, self._running.log.stat().st_size - END_BYTES))
            text = log.read().decode(errors="replace")
        with suppress(EndpointError):  # no key to be had is another error than this
            text = masked(text, self._endpoint.secrets())
        said = telling(text)
        return f"{ended}: {said}" if said else ended

    def stop(self) -> None:
        """End the server, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _lives(self, running: Running) -> bool:
        return running.process.poll() is None and is_healthy(self._endpoint)


@contextmanager
def kept(endpoint: Endpoint, *, logs: Path, start_s: float) -> Iterator[Kept]:
    """Yield what keeps the server up. Leaving ends it for certain."""
    server = Kept(endpoint, logs=logs, start_s=start_s)
    try:
        yield server
    finally:
        server.stop()


def telling(log: str) -> str:
    """Return the line at the end of a log that says best why a server died; empty where none does."""
    lines = [line.strip() for line in reversed(log.splitlines())]
    return next((line for word in TELLING for line in lines if word in line.lower()), "")[:200]
