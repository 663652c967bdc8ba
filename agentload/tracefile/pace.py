"""Time each call of a trace without a server: by starts, waits, dependencies and a pace."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

from agentload.model.trace import Session, Trace, Turn
from agentload.model.walk import families
from agentload.tracefile.references import REACH

Pace: TypeAlias = Callable[[Turn, float], tuple[float, float]]
"""Returns when a turn is sent and complete, for the instant at which its wait is over."""


class TimedCall(NamedTuple):
    """A turn with its start and end, in seconds from the trace's start."""

    start_s: float
    end_s: float
    session: Session
    number: int

    @property
    def turn(self) -> Turn:
        """The turn itself."""
        return self.session.turns[self.number]


class Paced:
    """The calls of a trace in the order they are sent; equal times keep the trace's order.

    To be iterated once.
    """

    def __init__(self, trace: Trace, pace: Pace) -> None:
        self._trace = trace
        self._pace = pace
        self._due: list[tuple[float, int, int, TimedCall]] = []
        """A heap of calls whose times are known, each with its place in the trace."""
        self._held: dict[str, tuple[int, Session]] = {}
        """Sessions not yet spawned, with their places."""
        self._parked: dict[str, list[tuple[int, Session, int, float]]] = {}
        """Turns that wait for the named session, and when they could be sent otherwise."""
        self._ends: OrderedDict[str, dict[int, float]] = OrderedDict()
        """When the turns of the sessions within reach are complete; -1 is the last one."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Sessions not played to their end: calls wait for each other or for missing turns."""
        names: list[str] = []
        for parked in self._parked.values():
            names += [session.session for _, session, *_ in parked]
        return tuple(dict.fromkeys((*names, *self._held)))

    def __iter__(self) -> Iterator[TimedCall]:
        places = count()
        for first, *spawned in families(self._trace.sessions):
            start_s = first.start_s or 0.0
            while self._due and self._due[0][0] < start_s:
                yield heappop(self._due)[-1]
            place = next(places)
            self._held.update((session.session, (next(places), session)) for session in spawned)
            self._follow(place, first, start_s)
        while self._due:
            yield heappop(self._due)[-1]

    def _follow(self, place: int, session: Session, start_s: float) -> None:
        """Time the calls of a session, and calls that waited for these, as far as possible.

        A call whose dependency is not timed yet is parked.
        """
        ready = [(place, session, 0, start_s)]
        while ready:
            place, session, number, at_s = ready.pop()
            turn = session.turns[number]
            name = session.session
            for ref in turn.after:
                end_s = self._ends.get(ref.session, {}).get(ref.turn)
                if end_s is None:
                    self._parked.setdefault(ref.session, []).append((place, session, number, at_s))
                    break
                at_s = max(at_s, end_s)
            else:
                call = TimedCall(*self._pace(turn, at_s + turn.wait_s), session, number)
                heappush(self._due, (call.start_s, place, number, call))
                self._note_end(call)
                ready += (
                    (*self._held.pop(child), 0, call.end_s)
                    for child in turn.spawn
                    if child in self._held
                )
                ready += self._parked.pop(name, ())
                if number + 1 < len(session.turns):
                    ready.append((place, session, number + 1, call.end_s))

    def _note_end(self, call: TimedCall) -> None:
        """Note when a call ends, for calls of other sessions that wait for it."""
        ends = self._ends.setdefault(call.session.session, {})
        ends[call.number] = call.end_s
        if call.number + 1 == len(call.session.turns):
            ends[-1] = call.end_s
        if len(self._ends) > REACH:
            self._ends.popitem(last=False)
