"""Play several traces as one: the mix that a server sees when it serves several kinds of agents."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef
from agentload.model.walk import families

ROOM: Final = 1 << 56  # block ids that a trace has to itself, however often it is repeated


@dataclass(frozen=True, slots=True)
class _Merged:
    traces: tuple[Trace, ...]

    def __iter__(self) -> Iterator[Session]:
        each = (families(_renamed(trace, place)) for place, trace in enumerate(self.traces))
        for family in heapq.merge(*each, key=lambda family: family[0].start_s or 0.0):
            yield from family


def merged(traces: Sequence[Trace]) -> Trace:
    """Join traces by start time; names get their trace's name in front, so that nothing collides. One trace stays as it is."""
    if len(traces) == 1:
        return traces[0]
    first = traces[0].header
    prefixes = {
        f"{t.header.name}/{name}": _segments(t, place, segments)
        for place, t in enumerate(traces)
        for name, segments in t.header.prefixes.items()
    }
    source = tuple((t.header.name, json.dumps({name: json.loads(said) for name, said in t.header.source})) for t in traces)
    name = "+".join(t.header.name for t in traces)
    header = Header(name=name, seed=first.seed, block=first.block, prefixes=prefixes, source=source)
    return Trace(header=header, sessions=_Merged(tuple(traces)))


def _renamed(trace: Trace, place: int) -> Iterator[Session]:
    name = trace.header.name
    for session in trace.sessions:
        yield replace(
            session,
            session=f"{name}/{session.session}",
            prefix=None if session.prefix is None else f"{name}/{session.prefix}",
            turns=tuple(_turn(trace, place, turn) for turn in session.turns),
        )


def _turn(trace: Trace, place: int, turn: Turn) -> Turn:
    name = trace.header.name
    return replace(
        turn,
        add=_segments(trace, place, turn.add),
        after=tuple(replace(ref, session=f"{name}/{ref.session}") for ref in turn.after),
        spawn=tuple(f"{name}/{child}" for child in turn.spawn),
    )


def _segments(trace: Trace, place: int, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Key every text by its trace as well: equal keys of two traces are not the same words."""
    name = trace.header.name

    def own(segment: Segment) -> Segment:
        key = f"{name}/{segment.key}" if isinstance(segment.key, str) else (segment.key[0] + place * ROOM, segment.key[1])
        source = segment.source and TurnRef(session=f"{name}/{segment.source.session}", turn=segment.source.turn)
        return replace(segment, key=key, source=source)

    return tuple(own(segment) for segment in segments)


SMALLEST: Final = 64


def sweep(contexts: Sequence[int], *, pairs: int, output: int, seed: int) -> Trace:
    """Return a trace whose blocks are one call for each length; no two calls share a token beyond the template's."""
    rng = Random(seed)
    sessions: list[Session] = []
    for pair in range(pairs):
        order = sorted(contexts, key=lambda _: rng.random())
        for context in order:
            name = f"{pair}.{context}"
            turn = Turn(add=(Segment(role="user", tokens=context, key=name),), output=output)
            sessions.append(Session(session=name, workload=CONTEXT_SWEEP, start_s=float(len(sessions)), turns=(turn,)))
    return Trace(header=Header(name=CONTEXT_SWEEP, seed=seed), sessions=tuple(sessions))
