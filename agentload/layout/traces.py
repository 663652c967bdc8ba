"""Make traces from others: merged, repeated, shortened, given texts; and a sweep's trace."""

import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from random import Random
from typing import Final

from agentload import degrade
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.record import Record
from agentload.model.trace import Header, Key, Recorded, Segment, Session, Trace, Turn
from agentload.model.walk import again, families

ROOM: Final = 1 << 56  # block ids reserved for a trace, however often it is repeated
ROUND: Final = 1 << 40  # block ids reserved for each repetition: more than any trace has


@again
def _merged(traces: Sequence[Trace]) -> Iterator[Session]:
    def own(trace: Trace, place: int) -> Iterator[Session]:
        names = _of_trace(trace, place)
        for session in trace.sessions:
            yield replace(
                names.of_session(session),
                prefix=None if session.prefix is None else names.name(session.prefix),
            )

    each = (families(own(trace, place)) for place, trace in enumerate(traces))
    for family in heapq.merge(*each, key=lambda family: family[0].start_s or 0.0):
        yield from family


def merge(traces: Sequence[Trace]) -> Trace:
    """Join traces by start time; names are prefixed with their trace's name to stay unique.

    A single trace stays as it is.
    """
    if len(traces) == 1:
        return traces[0]
    first = traces[0].header
    prefixes = {
        f"{t.header.name}/{name}": _of_trace(t, place).of_segments(segments)
        for place, t in enumerate(traces)
        for name, segments in t.header.prefixes.items()
    }
    source = tuple(
        (t.header.name, json.dumps({name: json.loads(said) for name, said in t.header.source}))
        for t in traces
    )
    name = "+".join(t.header.name for t in traces)
    header = Header(name=name, seed=first.seed, block=first.block, prefixes=prefixes, source=source)
    return Trace(header=header, sessions=_merged(traces))


class _Names(Record, kw_only=False):
    """Rename sessions and texts so that nothing collides."""

    name: Callable[[str], str]
    by: int
    """How far block ids are moved."""

    def of_session(self, session: Session) -> Session:
        """Return a session of the same shape under other names.

        It shares text with sessions renamed alike, as before; its prefix stays the same.
        """
        turns = tuple(
            replace(
                turn,
                add=self.of_segments(turn.add),
                after=tuple(replace(ref, session=self.name(ref.session)) for ref in turn.after),
                spawn=tuple(map(self.name, turn.spawn)),
            )
            for turn in session.turns
        )
        return replace(session, session=self.name(session.session), turns=turns)

    def of_segments(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return segments under other keys."""
        return tuple(
            replace(
                each,
                key=self._key(each.key),
                source=each.source and replace(each.source, session=self.name(each.source.session)),
            )
            for each in segments
        )

    def _key(self, key: Key) -> Key:
        if isinstance(key, str):
            return self.name(key)
        return (key[0] + self.by, key[1])


def _of_trace(trace: Trace, place: int) -> _Names:
    """Prefix every key with the trace's name: equal keys of two traces are different texts."""
    return _Names(lambda name: f"{trace.header.name}/{name}", place * ROOM)


def _of_round(round_: int) -> _Names:
    return _Names(lambda name: f"{name}#{round_}", round_ * ROUND)


def another(family: Sequence[Session], copy: int) -> tuple[Session, ...]:
    """Return a copy of a family: same shape, new content; copy 0 is the family itself."""
    names = _of_round(copy)
    if copy:
        return tuple(map(names.of_session, family))
    return tuple(family)


def sweep(contexts: Sequence[int], *, pairs: int, output: int, seed: int) -> Trace:
    """Return a trace whose blocks have one call for each length.

    No two calls share a token beyond the template's.
    """
    rng = Random(seed)
    sessions: list[Session] = []
    for pair in range(pairs):
        order = sorted(contexts, key=lambda _: rng.random())
        for context in order:
            name = f"{pair}.{context}"
            turn = Turn(add=(Segment(role="user", tokens=context, key=name),), output=output)
            sessions.append(
                Session(
                    session=name,
                    workload=CONTEXT_SWEEP,
                    start_s=float(len(sessions)),
                    turns=(turn,),
                )
            )
    return Trace(header=Header(name=CONTEXT_SWEEP, seed=seed), sessions=tuple(sessions))


@again
def repeat(trace: Trace, rounds: int) -> Iterator[Session]:
    """Yield a trace's sessions *rounds* times, each round with new content.

    A long run then never lacks load.
    """
    for round_ in range(rounds):
        names = _of_round(round_)
        for session in trace.sessions:
            yield names.of_session(session) if round_ else session


@again
def shorten(trace: Trace, tokens: int) -> Iterator[Session]:
    """Return a trace's sessions, each ended before it needs more than *tokens* tokens."""
    return degrade.shorten(trace.header, trace.sessions, tokens=tokens)


def with_texts(trace: Trace, texts: Mapping[str, str], *, compares: bool) -> Trace:
    """Return a trace whose segments have their real texts, taken from *texts* by key.

    If it *compares*, each turn also gets the recorded answer that the next turn contains.
    """

    def said(segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return tuple(
            replace(each, text=texts.get(each.key, each.text))
            if isinstance(each.key, str)
            else each
            for each in segments
        )

    @again
    def sessions() -> Iterator[Session]:
        for session in trace.sessions:
            turns = [replace(turn, add=said(turn.add)) for turn in session.turns]
            if compares:
                turns = [*map(_answered, turns, turns[1:]), *turns[-1:]]
            yield replace(session, turns=tuple(turns))

    prefixes = {name: said(segments) for name, segments in trace.header.prefixes.items()}
    return Trace(header=replace(trace.header, prefixes=prefixes), sessions=sessions())


def _answered(turn: Turn, following: Turn) -> Turn:
    said = [each.text for each in takewhile(lambda each: each.role == "assistant", following.add)]
    answer = "\n".join(filter(None, said))
    if answer:
        return replace(turn, recorded=replace(turn.recorded or Recorded(), answer=answer))
    return turn
