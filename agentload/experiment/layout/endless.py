"""Sessions for runs longer than their trace: over and over, and the first of them already under way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from agentload.degrade.split import split
from agentload.model.trace import Key, Session, Trace

ROOM: Final = 1 << 40  # block ids that a round has to itself: more than any trace numbers


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
    """Return a session as another one of the same shape: same prefix, own content, shared within its round as before."""
    mark = f"#{round_}"

    def key(old: Key) -> Key:
        return f"{old}{mark}" if isinstance(old, str) else (old[0] + round_ * ROOM, old[1])

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
