"""Play a trace at a nominal speed, to see which calls overlap: no server, no queue, every call takes the time of its tokens."""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from agentload.model.trace import Session, Trace, Turn
from agentload.tracefile.references import REACH

PREFILL_TOKENS_PER_S: Final = 10_000.0
DECODE_TOKENS_PER_S: Final = 40.0
"""About the speed that coding agents see from their providers: 39 tokens/s (callanjfox/kv-cache-tester). Prefill: judgement."""


class Call(NamedTuple):
    """A turn with the instants between which it runs, in seconds from the trace's start."""

    start_s: float
    end_s: float
    session: Session
    number: int

    @property
    def turn(self) -> Turn:
        """Return the turn."""
        return self.session.turns[self.number]


def played(trace: Trace) -> Iterator[Call]:
    """Yield the calls of a trace in the order in which they start; one that waits for what never comes is left out."""
    return _Player().play(trace)


class _Player:
    def __init__(self) -> None:
        self._events: list[tuple[float, int, Call, bool]] = []
        self._order = count()
        self._held: dict[str, Session] = {}
        """Sessions that wait to be spawned."""
        self._parked: dict[str, list[tuple[Session, int]]] = {}
        """Turns that wait for a turn of the named session."""
        self._done: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Turns complete and turns in all, of the sessions within reach."""

    def play(self, trace: Trace) -> Iterator[Call]:
        for session in trace.sessions:
            if session.start_s is None:
                self._held[session.session] = session
                continue
            # What lies before this start can be played: all that it spawns has been read.
            yield from self._until(session.start_s)
            self._due(session, 0, session.start_s)
        yield from self._until(float("inf"))

    def _until(self, instant_s: float) -> Iterator[Call]:
        while self._events and self._events[0][0] < instant_s:
            at_s, _, call, ends = heappop(self._events)
            if ends:
                self._ended(call, at_s)
            else:
                heappush(self._events, (call.end_s, next(self._order), call, True))
                yield call

    def _ended(self, call: Call, at_s: float) -> None:
        name = call.session.session
        self._done[name] = (call.number + 1, len(call.session.turns))
        if len(self._done) > REACH:
            self._done.popitem(last=False)
        for child in call.turn.spawn:
            if (spawned := self._held.pop(child, None)) is not None:
                self._due(spawned, 0, at_s)
        for session, index in self._parked.pop(name, ()):
            self._due(session, index, at_s)
        if call.number + 1 < len(call.session.turns):
            self._due(call.session, call.number + 1, at_s)

    def _due(self, session: Session, index: int, at_s: float) -> None:
        """Schedule a turn whose predecessor is complete, or park it until all others that it waits for are."""
        turn = session.turns[index]
        for ref in turn.after:
            done, length = self._done.get(ref.session, (0, 1))
            if done <= (length - 1 if ref.turn == -1 else ref.turn):
                self._parked.setdefault(ref.session, []).append((session, index))
                return
        start_s = at_s + turn.wait_s
        tokens = sum(segment.tokens for segment in turn.add)
        end_s = start_s + tokens / PREFILL_TOKENS_PER_S + turn.output / DECODE_TOKENS_PER_S
        heappush(self._events, (start_s, next(self._order), Call(start_s, end_s, session, index), False))
