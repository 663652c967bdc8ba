"""Follow a server's log as it grows: its periodic lines as samples, for servers whose /metrics cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentload.telemetry.log_lines import work

MOST_BYTES: Final = 1 << 20
"""Of one look: periodic lines come every ten seconds, and a log that grows faster holds little of them."""
SAMPLED: Final = ("running", "waiting", "kv_usage", "prefix_hit_rate", "prompt_tokens_per_s", "output_tokens_per_s")


class LogTail:
    """Say what was written since the last look; what was there before the first is history."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._rest = b""
        self._preemptions = 0
        try:
            self._offset = self._path.stat().st_size
        except OSError:
            self._offset = 0

    def values(self) -> Iterator[tuple[str, float]]:
        """Yield the figures of the lines since the last look, by the names of samples; none where the file cannot be read."""
        for each in work(self._new_lines()):
            # The line counts since the one before, samples since the start.
            self._preemptions += each.preemptions or 0
            yield "preemptions", float(self._preemptions)
            for name in SAMPLED:
                if (value := getattr(each, name)) is not None:
                    yield name, float(value)

    def _new_lines(self) -> list[str]:
        try:
            size = self._path.stat().st_size
            if size < self._offset:  # rotated, or written anew by a server that was started again
                self._offset, self._rest = 0, b""
            with self._path.open("rb") as file:
                file.seek(max(self._offset, size - MOST_BYTES))
                found = file.read(MOST_BYTES)
                self._offset = file.tell()
        except OSError:
            return []
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
