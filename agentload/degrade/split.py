"""Split sessions in the middle: what comes first is told in one priming turn, and the rest is played.

A trace of long sessions takes hours before its contexts are long. A split session begins where it was after a part of its turns, with one
call that sends the whole context and is answered by one token: it fills the cache, and is marked `prime`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentload.degrade.draw import uniform
from agentload.model.trace import PRIME, Header, Session, Turn
from agentload.tracefile.contexts import contexts


def split(header: Header, sessions: Iterable[Session], *, share: float, seed: int, first: int | None = None) -> Iterator[Session]:
    """Split each session of three turns or more with this probability, at a turn drawn from all but its first and last.

    What the told turns had spawned is left out, and so are waits for it. With *first*, only so many sessions that start by themselves, and
    what they spawn, are split; all others are as they were.
    """
    dropped: set[str] = set()
    roots = 0
    for session in sessions:
        roots += session.start_s is not None
        if session.session in dropped:
            dropped |= {child for turn in session.turns for child in turn.spawn}
            continue
        draws = uniform(seed, "split", session.session)
        is_meant = next(draws) < share and (first is None or roots <= first)
        is_split = is_meant and len(session.turns) >= 3
        at = 1 + int(next(draws) * (len(session.turns) - 2)) if is_split else 0
        dropped |= {child for turn in session.turns[:at] for child in turn.spawn}
        yield _from(header, session, at, dropped)


def _from(header: Header, session: Session, at: int, dropped: set[str]) -> Session:
    turns = [_told(turn, dropped) for turn in session.turns]
    if not at:
        return replace(session, turns=tuple(turns))
    *_, told = (context for _, context in zip(range(at), contexts(header, session), strict=False))
    lead = len(header.prefixes[session.prefix]) if session.prefix is not None else 0
    shared = lead if lead and told[:lead] == header.prefixes[session.prefix or ""] else 0
    prime = Turn(add=told[shared:], output=1, keep=None if shared == lead else 0, event=PRIME, model=turns[at - 1].model)
    first = replace(turns[at], wait=None, wait_s=0.0, recorded=None)
    return replace(session, turns=(prime, first, *turns[at + 1 :]))


def _told(turn: Turn, dropped: set[str]) -> Turn:
    if not any(ref.session in dropped for ref in turn.after):
        return turn
    return replace(turn, after=tuple(ref for ref in turn.after if ref.session not in dropped))
