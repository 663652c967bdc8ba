"""Keep a server of ours up: started when it is needed first, and again when it has died."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import Running, is_healthy, start


@contextmanager
def kept(endpoint: Endpoint, *, logs: Path, start_s: float) -> Iterator[Callable[[], bool]]:
    """Yield what brings the server up; it tells whether one that ran before had died. Leaving ends the server for certain."""
    running: Running | None = None
    starts = 0

    def up() -> bool:
        nonlocal running, starts
        if running is not None and running.process.poll() is None and is_healthy(endpoint):
            return False
        before, running = running, None
        if before is not None:
            before.stop()  # an API server may outlive its engines, and they it
        starts += 1
        running = start(endpoint, logs=logs / f"start-{starts:03}", start_s=start_s)
        return before is not None

    try:
        yield up
    finally:
        if running is not None:
            running.stop()
