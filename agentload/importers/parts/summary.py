"""What an import says of itself: what it holds, how well it matches its source, what was odd, estimated or left out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentload.importers.parts.notes import Notes
from agentload.importers.parts.reuse import Reuse, Trail
from agentload.model.trace import Session

Counted = tuple[tuple[str, int, str | None], ...]
"""What, how often, and where it was first met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An import in numbers; shares lie between 0 and 1, absent is None."""

    format: str
    files: int
    source_bytes: int
    sessions: int
    spawned: int
    calls: int
    span_s: float
    """From the first start to the last that is known."""
    prompt_tokens: int
    output_tokens: int
    ideal_source: float | None
    """Share of prompt tokens that a prefix cache without bounds would hold, by the source's own identities; None if it has none."""
    ideal_import: float | None
    """The same of the trace that was written."""
    ideal_is_exact: bool
    recorded_hits: float | None
    """Share of prompt tokens that the recorded servers had cached, where they said so."""
    grid_s: float | None
    """Distance of the grid on which all starts lie and some fall together, if it is a second or more."""
    malformed: Counted
    odd: Counted
    estimated: Counted
    dropped: Counted
    texts: int | None
    """Literal texts kept beside the trace; None: none were asked for."""
    licence: str | None


@dataclass(slots=True)
class Tally:
    """Count sessions as they pass."""

    reuse: Reuse
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
    _trails: dict[str, Trail] = field(default_factory=dict)

    def count(self, sessions: Iterator[Session]) -> Iterator[Session]:
        """Pass sessions through."""
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
            last_s = max(last_s, (turn.recorded.start_s or 0.0) + (turn.recorded.api_s or 0.0))
            if turn.recorded.cached is not None:
                self.cached_tokens += turn.recorded.cached
                self.cached_prompts += self.reuse.prompt_tokens - before
        self.last_s = max(self.last_s, last_s)

    @property
    def grid_s(self) -> float | None:
        """Return the grid of the starts, if there are enough of them to tell and some fall together."""
        return self._grid_ms / 1000 if self._starts > 10 and self._ties and self._grid_ms >= 1000 else None

    def summary(
        self, *, format: str, files: int, source_bytes: int, source: Reuse, notes: Notes, texts: int | None, licence: str | None
    ) -> Summary:
        """Sum up."""
        return Summary(
            format=format,
            files=files,
            source_bytes=source_bytes,
            sessions=self.sessions,
            spawned=self.spawned,
            calls=self.calls,
            span_s=self.last_s,
            prompt_tokens=self.reuse.prompt_tokens,
            output_tokens=self.output_tokens,
            ideal_source=source.ratio,
            ideal_import=self.reuse.ratio,
            ideal_is_exact=source.is_exact and self.reuse.is_exact,
            recorded_hits=self.cached_tokens / self.cached_prompts if self.cached_prompts else None,
            grid_s=self.grid_s,
            malformed=notes.placed(notes.malformed),
            odd=notes.placed(notes.odd),
            estimated=notes.placed(notes.estimated),
            dropped=notes.placed(notes.dropped),
            texts=texts,
            licence=licence,
        )
