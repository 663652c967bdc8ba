"""Play a trace with the words that its import kept, and know what was answered then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from agentload.model.trace import Recorded, Segment, Session, Trace, Turn
from agentload.model.walk import again


def spoken(trace: Trace, texts: Mapping[str, str], *, compares: bool) -> Trace:
    """Return a trace whose segments say what they said, by key; if it *compares*, turns know what the next one took for their answer."""

    def said(segments: Sequence[Segment]) -> tuple[Segment, ...]:
        return tuple(replace(each, text=texts.get(each.key, each.text)) if isinstance(each.key, str) else each for each in segments)

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
    return replace(turn, recorded=replace(turn.recorded or Recorded(), answer=answer)) if answer else turn
