"""Walk over sessions: again and again, a context from turn to turn, what two contexts begin with
alike, and families of sessions that belong together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from inspect import unwrap
from itertools import accumulate, takewhile
from typing import ParamSpec

from agentload.model.record import Record
from agentload.model.trace import Header, Segment, Session

P = ParamSpec("P")


class _Again(Record, kw_only=False):
    made: Callable[..., Iterable[Session]]
    """As it is known by name, so that this can be sent to another process."""
    given: tuple[object, ...]
    options: Mapping[str, object]

    def __iter__(self) -> Iterator[Session]:
        return iter(unwrap(self.made)(*self.given, **self.options))


def again(made: Callable[P, Iterator[Session]]) -> Callable[P, Iterable[Session]]:
    """Have a function return sessions that may be iterated
    several times: it makes them again each time, and none before.
    """

    @wraps(made)
    def sessions(*given: P.args, **options: P.kwargs) -> Iterable[Session]:
        return _Again(sessions, given, options)

    return sessions


def contexts(header: Header, session: Session) -> Iterator[tuple[Segment, ...]]:
    """Yield what each turn sends: what it keeps of the
    context before, the prefix at first, and what it adds.
    """
    context = header.prefix_of(session)
    for turn in session.turns:
        context = context[: turn.keep] + turn.add
        yield context


def last_context(header: Header, session: Session, turns: int) -> tuple[Segment, ...]:
    """Return what the last of so many turns sends, without those before it."""
    context = list(header.prefix_of(session))
    for turn in session.turns[:turns]:
        if turn.keep is not None:
            del context[turn.keep :]
        context += turn.add
    return tuple(context)


def context_tokens(header: Header, session: Session) -> Iterator[int]:
    """Yield how many tokens each turn sends: in a time that grows with
    the segments, where those of all contexts grow with their square.
    """
    prefix = header.prefix_of(session)
    ends = [0, *accumulate(segment.tokens for segment in prefix)]
    for turn in session.turns:
        if turn.keep is not None:
            del ends[1 + turn.keep :]
        for segment in turn.add:
            ends.append(ends[-1] + segment.tokens)
        yield ends[-1]


def common_start(before: Iterable[object], now: Iterable[object]) -> int:
    """Count the equal leading pieces of two texts, or segments of two contexts, by place."""
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def families(sessions: Iterable[Session]) -> Iterator[list[Session]]:
    """Yield each session that starts by itself, with those that follow because it spawned them."""
    family: list[Session] = []
    for session in sessions:
        if session.start_s is not None and family:
            yield family
            family = []
        family.append(session)
    if family:
        yield family
