"""Cut a small trace out of large ones, with contexts of all lengths: for demonstrations and for fits against the context."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.model.walk import contexts

_NEAR: Final = 0.08
_APART_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What to take: sessions of a few calls, their first contexts evenly (in logarithms) between two lengths."""

    sessions: int
    calls: int
    context: tuple[int, int]
    output: tuple[int, int]
    """Bounds of every answer, those in the history included."""
    wait_s: float
    """The longest wait."""


def excerpt(sources: Sequence[Trace], wanted: Excerpt) -> Iterator[Session]:
    """Yield the sessions; the shorter contexts come from the first sources.

    Only for sessions that neither spawn others nor wait for them.
    """
    streams = [(source.header, iter(source.sessions)) for source in sources]
    low, high = wanted.context
    taken: set[str] = set()
    for number in range(wanted.sessions):
        aim = low * (high / low) ** ((number + 0.5) / wanted.sessions)
        header, sessions = streams[number * len(streams) // wanted.sessions]
        # Sources of one workload name their sessions alike; a name is taken once, since keys go by it.
        unused = (session for session in sessions if session.session not in taken)
        found = next(cut for session in unused if (cut := _cut(header, session, aim, wanted.calls)) is not None)
        taken.add(found.session)
        yield replace(found, start_s=round(number * _APART_S, 3), turns=tuple(_bounded(turn, wanted) for turn in found.turns))


def _cut(header: Header, session: Session, aim: float, calls: int) -> Session | None:
    """Return the turns from the first on whose context is near the aim; that turn adds all of it but the prefix."""
    for index, context in enumerate(contexts(header, session)):
        if abs(sum(segment.tokens for segment in context) - aim) <= _NEAR * aim:
            prefix = len(header.prefixes[session.prefix]) if session.prefix is not None else 0
            first = replace(session.turns[index], add=context[prefix:], keep=None, wait=None, wait_s=0.0)
            return replace(session, turns=(first, *session.turns[index + 1 : index + calls]))
    return None


def _bounded(turn: Turn, wanted: Excerpt) -> Turn:
    add = tuple(_history(segment, wanted) for segment in turn.add)
    return replace(turn, add=add, output=_within(turn.output, wanted), wait_s=min(turn.wait_s, wanted.wait_s))


def _history(segment: Segment, wanted: Excerpt) -> Segment:
    return replace(segment, tokens=_within(segment.tokens, wanted)) if segment.role == "assistant" else segment


def _within(tokens: int, wanted: Excerpt) -> int:
    low, high = wanted.output
    return min(high, max(low, tokens))
