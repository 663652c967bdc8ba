"""Say when each call of a trace is sent, where it is recorded or else as it would come out, in order of time.

A call is due when all it depends on is complete, plus its wait. How long calls take is recorded, or `s_per_token` for each token of their
output. Sessions are read one by one; what is held are the calls that are later than a session yet to come.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from agentload.errors import TraceError
from agentload.model.trace import Segment, Session, Trace, Turn
from agentload.model.walk import contexts, families

_REACH: Final = 10_000
"""Sessions that a reference may reach back, by the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One call and when it is sent."""

    at_s: float
    session: Session
    number: int
    turn: Turn
    context: tuple[Segment, ...]


def sent(trace: Trace, *, s_per_token: float) -> Iterator[Sent]:
    """Yield all calls in order of time; equal times keep the order of the trace."""
    done: OrderedDict[str, list[float]] = OrderedDict()
    held: list[tuple[float, int, Sent]] = []
    order = count()
    for family in families(trace.sessions):
        start_s = family[0].start_s or 0.0
        while held and held[0][0] < start_s:
            yield heapq.heappop(held)[2]
        starts = _starts(family, done, s_per_token)
        for session in family:
            for number, context in enumerate(contexts(trace.header, session)):
                call = Sent(
                    at_s=starts[session.session][number], session=session, number=number, turn=session.turns[number], context=context
                )
                heapq.heappush(held, (call.at_s, next(order), call))
        while len(done) > _REACH:
            done.popitem(last=False)
    while held:
        yield heapq.heappop(held)[2]


def _starts(family: list[Session], done: "OrderedDict[str, list[float]]", s_per_token: float) -> dict[str, list[float]]:
    """Return when each call is sent, resolving sessions in turn until none is left; remember when each is complete."""
    spawned = {child: (session.session, number) for session in family for number, turn in enumerate(session.turns) for child in turn.spawn}
    starts: dict[str, list[float]] = {session.session: [] for session in family}
    done.update((session.session, []) for session in family)
    sizes = {session.session: len(session.turns) for session in family}
    waiting = list(family)
    while waiting:
        before = sum(map(len, starts.values()))
        for session in waiting:
            _advance(session, starts[session.session], done, spawner=spawned.get(session.session), sizes=sizes, s_per_token=s_per_token)
        waiting = [session for session in waiting if len(starts[session.session]) < len(session.turns)]
        if sum(map(len, starts.values())) == before:
            names = ", ".join(session.session for session in waiting)
            raise TraceError(f"calls of {names} wait for each other or for a session that is not there", hint="agentload trace check FILE")
    return starts


def _advance(
    session: Session,
    starts: list[float],
    done: "OrderedDict[str, list[float]]",
    *,
    spawner: tuple[str, int] | None,
    sizes: dict[str, int],
    s_per_token: float,
) -> None:
    """Find the starts of a session's further calls, as far as what they wait for is known."""
    own = done[session.session]
    while len(starts) < len(session.turns):
        turn = session.turns[len(starts)]
        ready = [own[-1]] if own else [session.start_s] if session.start_s is not None else []
        others = [(ref.session, ref.turn) for ref in turn.after] + ([spawner] if spawner is not None and not own else [])
        for name, number in others:
            ends = done.get(name, [])
            at = sizes.get(name, len(ends)) - 1 if number < 0 else number
            if at < 0 or at >= len(ends):
                return
            ready.append(ends[at])
        recorded = turn.recorded
        at_s = recorded.start_s if recorded is not None and recorded.start_s is not None else max(ready, default=0.0) + turn.wait_s
        took_s = recorded.api_s if recorded is not None and recorded.api_s is not None else turn.output * s_per_token
        starts.append(at_s)
        own.append(at_s + took_s)
