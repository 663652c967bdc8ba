"""Predict which calls of a window are sent, and when, at an assumed speed.

Blocks are laid out with more sessions than they need;
the prediction says how much of a block is likely to be played.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from agentload.layout.timeline import NOMINAL, ServerPace, Timeline, timeline
from agentload.model.plan import Block, Budget, ClosedLoop, Load
from agentload.model.record import Record
from agentload.model.trace import PRIME, UNDER_WAY, Header, Segment, Session, Turn, total_tokens
from agentload.model.walk import contexts, families

UNBOUNDED_S: Final = 600.0
"""Length assumed for a window that has no duration; later calls are left out."""


class NominalCall(Record):
    """Describe one call of a window.

    `counts` is False for priming, and for the rest of an answer that was already under way.
    """

    session: Session
    turn: Turn
    context: tuple[Segment, ...]
    sent_s: float
    """When the call is sent, from the start of the window's clock; negative for priming."""
    answered_s: float
    counts: bool


def nominal_calls(
    header: Header, block: Block, load: Load, pace: ServerPace = NOMINAL
) -> tuple[NominalCall, ...]:
    """Return the calls of a window in the order of sending.

    Priming calls come first, then those sent before its duration or its budget ends.
    """
    seconds = load.budget.seconds or UNBOUNDED_S
    found = [
        call
        for family, timings, at_s in _starts(block.sessions, load, seconds, pace)
        for call in _calls(header, family, timings, at_s)
    ]
    sent = sorted((each for each in found if each.sent_s < seconds), key=lambda each: each.sent_s)
    return tuple(_afforded(sent, load.budget))


def _afforded(sent: Iterable[NominalCall], budget: Budget) -> Iterator[NominalCall]:
    """Yield calls until the budget of calls or tokens is spent."""
    if budget.calls is None and budget.tokens is None:
        yield from sent
        return
    calls = tokens = 0
    for each in sent:
        if (budget.calls is not None and calls >= budget.calls) or (
            budget.tokens is not None and tokens >= budget.tokens
        ):
            return
        yield each
        calls += each.counts
        if each.turn.event != PRIME:
            tokens += each.turn.output + total_tokens(each.context)


def _starts(
    sessions: Iterable[Session], load: Load, seconds: float, pace: ServerPace
) -> Iterator[tuple[Sequence[Session], Timeline, float]]:
    """Yield each family that starts in a window, with its timeline, and when it starts."""
    slots = load.arrivals.sessions if isinstance(load.arrivals, ClosedLoop) else None
    free_s: list[float] = [] if slots is None else [0.0] * slots
    for family in families(sessions):
        timings = timeline(family, load, pace)
        lasting_s = _lasts_s(family, timings)
        if slots is None:
            yield family, timings, family[0].start_s or 0.0
        elif lasting_s <= 0:  # the family only primes
            yield family, timings, 0.0
        else:
            at_s = heappop(free_s)
            if at_s >= seconds:
                return
            yield family, timings, at_s
            heappush(free_s, at_s + lasting_s)


def _primed_s(session: Session, timings: Timeline) -> float:
    """Return how much of a session's timeline its priming call takes, in s."""
    if session.turns[0].event == PRIME:
        return timings[session.session][0].answered_s
    return 0.0


def _lasts_s(family: Sequence[Session], timings: Timeline) -> float:
    """Return how long a family has its place in a closed loop, which its first session ends."""
    root = family[0]
    played = timings.get(root.session, ())
    if played:
        return played[-1].answered_s - _primed_s(root, timings)
    return 0.0


def _calls(
    header: Header, family: Sequence[Session], timings: Timeline, at_s: float
) -> Iterator[NominalCall]:
    primed_s = _primed_s(family[0], timings)
    for session in family:
        # A carried session is primed before the clock starts, however
        # long the priming of the family's first session takes.
        own_s = primed_s
        if (
            session is not family[0]
            and session.turns[0].event == PRIME
            and timings.get(session.session)
        ):
            own_s = timings[session.session][0].answered_s
        for turn, context, timing in zip(
            session.turns, contexts(header, session), timings.get(session.session, ()), strict=False
        ):
            is_primed = turn.event == PRIME
            yield NominalCall(
                session=session,
                turn=turn,
                context=context,
                sent_s=-1.0 if is_primed else at_s + timing.sent_s - own_s,
                answered_s=0.0 if is_primed else at_s + timing.answered_s - own_s,
                counts=turn.event not in {PRIME, UNDER_WAY},
            )
