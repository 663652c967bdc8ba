"""Follow a server's log as it grows: its periodic lines as samples, for servers whose /metrics cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentload.telemetry.log_lines import Work, work

MOST_BYTES: Final = 1 << 20
"""Of one look: periodic lines come every ten seconds, and a log that grows faster holds little of them."""
ADDED: Final = ("running", "waiting", "prompt_tokens_per_s", "output_tokens_per_s")
"""Over the engines of a server, each of which writes lines of its own."""


class LogTail:
    """Say what was written since the last look; what was there before the first is history."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._rest = b""
        self._preemptions = 0
        self._engines: dict[str | None, Work] = {}
        try:
            self._offset = self._path.stat().st_size
        except OSError:
            self._offset = 0

    def values(self) -> Iterator[tuple[str, float]]:
        """Yield the figures of the lines since the last look, each once and by the names of samples; none where the file cannot be read."""
        lines = tuple(work(self._new_lines()))
        for each in lines:
            # The line counts since the one before, samples since the start.
            self._preemptions += each.preemptions or 0
            self._engines[each.engine] = each
        if not lines:
            return
        engines = tuple(self._engines.values())
        yield "preemptions", float(self._preemptions)
        yield from ((name, float(sum(getattr(each, name) for each in engines))) for name in ADDED)
        yield "kv_usage", max(each.kv_usage for each in engines)
        rates = [each.prefix_hit_rate for each in engines]
        if len(rates) == 1 and rates[0] is not None:  # of several it is not known what each is a share of
            yield "prefix_hit_rate", rates[0]

    def _new_lines(self) -> list[str]:
        try:
            size = self._path.stat().st_size
            if size < self._offset:  # rotated, or written anew by a server that was started again
                self._offset, self._rest = 0, b""
                self._engines.clear()
            with self._path.open("rb") as file:
                file.seek(max(self._offset, size - MOST_BYTES))
                found = file.read(MOST_BYTES)
                self._offset = file.tell()
        except OSError:
            return []
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
