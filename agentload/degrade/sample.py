"""Take a sample of sessions: each with all that it spawned, and none that another of the sample waits for is missing."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentload.degrade.draw import uniform
from agentload.model.trace import Session


def sampled(sessions: Iterable[Session], *, share: float, seed: int) -> Iterator[Session]:
    """Keep each session that starts by itself with this probability, and what it spawned with it.

    A wait for a session that is left out is left out too.
    """
    kept: set[str] = set()
    is_kept = False
    for session in sessions:
        if session.start_s is not None:
            is_kept = next(uniform(seed, "sample", session.session)) < share
        if is_kept:
            kept.add(session.session)
            yield _without(session, kept)


def _without(session: Session, kept: set[str]) -> Session:
    """Drop waits for sessions that are neither kept nor this one's own children, which follow."""
    known = kept | {child for turn in session.turns for child in turn.spawn}
    if all(ref.session in known for turn in session.turns for ref in turn.after):
        return session
    turns = (replace(turn, after=tuple(ref for ref in turn.after if ref.session in known)) for turn in session.turns)
    return replace(session, turns=tuple(turns))
