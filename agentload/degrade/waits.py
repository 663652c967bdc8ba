"""Change the time between calls: cap pauses, and play everything faster or slower."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from agentload.model.trace import Recorded, Session, Turn


def capped(sessions: Iterable[Session], *, cap_s: float) -> Iterator[Session]:
    """Let no wait be longer than this; starts of sessions stay, and recorded times, which are no longer those of the trace, go."""
    return (_mapped(session, lambda turn: _capped(turn, cap_s)) for session in sessions)


def scaled(sessions: Iterable[Session], *, scale: float) -> Iterator[Session]:
    """Multiply starts, waits and recorded starts; how long servers took stays."""
    for session in sessions:
        start_s = None if session.start_s is None else round(session.start_s * scale, 6)
        yield replace(_mapped(session, lambda turn: _scaled(turn, scale)), start_s=start_s)


def _mapped(session: Session, change: Callable[[Turn], Turn]) -> Session:
    return replace(session, turns=tuple(map(change, session.turns)))


def _capped(turn: Turn, cap_s: float) -> Turn:
    recorded = None if turn.recorded is None else replace(turn.recorded, start_s=None)
    return replace(turn, wait_s=min(turn.wait_s, cap_s), recorded=None if recorded == Recorded() else recorded)


def _scaled(turn: Turn, scale: float) -> Turn:
    recorded = turn.recorded
    if recorded is not None and recorded.start_s is not None:
        recorded = replace(recorded, start_s=round(recorded.start_s * scale, 6))
    return replace(turn, wait_s=round(turn.wait_s * scale, 6), recorded=recorded)
