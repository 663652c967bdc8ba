"""Sessions for runs longer than their trace: over and over, and the first of them already under way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentload.degrade.split import split
from agentload.model.trace import Session, Trace


@dataclass(frozen=True, slots=True)
class Repeated:
    """A trace's sessions over and over, so that a long run never lacks load; each round is new content."""

    trace: Trace
    rounds: int

    def __iter__(self) -> Iterator[Session]:
        for round_ in range(self.rounds):
            for session in self.trace.sessions:
                yield _again(session, round_) if round_ else session


@dataclass(frozen=True, slots=True)
class Primed:
    """Sessions of a trace, the first so many begun in the middle."""

    trace: Trace
    agents: int
    seed: int

    def __iter__(self) -> Iterator[Session]:
        return split(self.trace.header, self.trace.sessions, share=1.0, seed=self.seed, first=self.agents)


def _again(session: Session, round_: int) -> Session:
    """Return a session as another one of the same shape: same prefix, own content."""
    mark = f"#{round_}"

    def key(old: str | tuple[int, int]) -> str | tuple[int, int]:
        return f"{old}{mark}" if isinstance(old, str) else old

    return replace(
        session,
        session=session.session + mark,
        turns=tuple(
            replace(
                turn,
                add=tuple(
                    replace(part, key=key(part.key), source=part.source and replace(part.source, session=part.source.session + mark))
                    for part in turn.add
                ),
                after=tuple(replace(ref, session=ref.session + mark) for ref in turn.after),
                spawn=tuple(child + mark for child in turn.spawn),
            )
            for turn in session.turns
        ),
    )
