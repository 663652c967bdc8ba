"""Take the notes of an import: what was odd, estimated or dropped, and a summary in numbers.

Notes name kinds and places, never content: the summary of an import is as private as the import.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentload.errors import TraceError
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.record import Record
from agentload.model.trace import Session

Tolerance: TypeAlias = Literal["strict", "normal", "lenient"]
"""strict: oddities are errors; normal: malformed records are; lenient: records are skipped."""
Counted = tuple[tuple[str, int, str | None], ...]
"""Kind, count and first place of each note."""


@dataclass(slots=True)
class ImportNotes:
    """Count by kind, and keep the first place of each."""

    tolerance: Tolerance = "normal"
    malformed: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    estimated: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """The first place of each kind of malformed record or oddity."""
    read_bytes: int = 0
    """Bytes read from the source, after decompression."""

    def skip(self, place: str, what: str) -> None:
        """Skip an unreadable record; raise `TraceError` unless lenient."""
        if self.tolerance != "lenient":
            raise TraceError(
                f"{place}: {what}", hint="--lenient skips such records and counts them"
            )
        self.malformed[what] += 1
        self.first.setdefault(what, place)

    def meet(self, place: str, what: str, count: int = 1) -> None:
        """Note something odd that is imported as far as possible; raise `TraceError` if strict."""
        if self.tolerance == "strict":
            raise TraceError(
                f"{place}: {what}",
                hint="without --strict it is imported as far as possible, and counted",
            )
        self.odd[what] += count
        self.first.setdefault(what, place)

    def estimate(self, what: str, count: int = 1) -> None:
        """Note that a value is not in the source and was estimated."""
        self.estimated[what] += count

    def drop(self, what: str, count: int = 1) -> None:
        """Note that something in the source has no place in a trace."""
        self.dropped[what] += count

    def placed(self, counts: Mapping[str, int]) -> Counted:
        """Return (what, count, first place), most frequent first."""
        ordered = sorted(counts, key=lambda what: (-counts[what], what))
        return tuple((what, counts[what], self.first.get(what)) for what in ordered)


class ImportSummary(Record):
    """An import in numbers; shares are between 0 and 1, absent is None."""

    format: str
    files: int
    source_bytes: int
    sessions: int
    spawned: int
    calls: int
    span_s: float
    """From the first to the last known start."""
    prompt_tokens: int
    output_tokens: int
    ideal_source: float | None
    """Ideal hit rate by the source's own identities; None if it has none."""
    ideal_import: float | None
    """Ideal hit rate of the written trace."""
    ideal_is_exact: bool
    recorded_hits: float | None
    """Share of prompt tokens that the recorded servers had cached, if known."""
    grid_s: float | None
    """Seconds of the grid that all starts are on, if at least 1 and some starts coincide."""
    malformed: Counted
    odd: Counted
    estimated: Counted
    dropped: Counted
    texts: int | None
    """Literal texts kept with the trace; None if not requested."""
    licence: str | None


@dataclass(slots=True)
class SessionTally:
    """Count sessions as they pass."""

    reuse: BlockReuse
    sessions: int = 0
    spawned: int = 0
    calls: int = 0
    output_tokens: int = 0
    last_s: float = 0.0
    cached_tokens: int = 0
    cached_prompts: int = 0
    _starts: int = 0
    _ties: int = 0
    _start_s: float | None = None
    _grid_ms: int = 0

    def count(self, sessions: Iterator[Session]) -> Iterator[Session]:
        """Count sessions and pass them through."""
        for session in sessions:
            self._count(session)
            yield session

    def _count(self, session: Session) -> None:
        self.sessions += 1
        self.calls += len(session.turns)
        if session.start_s is None:
            self.spawned += 1
        else:
            self._starts += 1
            self._ties += session.start_s == self._start_s
            self._start_s = session.start_s
            self._grid_ms = math.gcd(self._grid_ms, round(session.start_s * 1000))
        trail = self.reuse.trail()
        last_s = session.start_s or 0.0
        for turn in session.turns:
            before = self.reuse.prompt_tokens
            trail.call(turn.add, keep=turn.keep)
            self.output_tokens += turn.output
            if turn.recorded is None:
                continue
            recorded = turn.recorded
            last_s = max(last_s, (recorded.start_s or 0.0) + (recorded.api_s or 0.0))
            if recorded.cached is not None:
                self.cached_tokens += recorded.cached
                self.cached_prompts += self.reuse.prompt_tokens - before
        self.last_s = max(self.last_s, last_s)

    @property
    def recorded_hits(self) -> float | None:
        """Share of prompt tokens that servers had cached, where they said so."""
        if not self.cached_prompts:
            return None
        return self.cached_tokens / self.cached_prompts

    @property
    def grid_s(self) -> float | None:
        """Seconds of the starts' grid, if there are enough starts and some coincide."""
        if self._starts > 10 and self._ties and self._grid_ms >= 1000:
            return self._grid_ms / 1000
        return None
