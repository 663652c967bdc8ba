"""Break prefixes: let a share of the calls share less than they did.

A broken call keeps its first `keep` segments and sends the rest of its context under new names, as if a tool's schema or a date in front of
the history had changed: same lengths, no hits behind the break. What follows in the session goes on from the new names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agentload.degrade.draw import uniform
from agentload.model.trace import Header, Segment, Session, Turn
from agentload.model.walk import contexts


def broken(header: Header, sessions: Iterable[Session], *, share: float, keep: int, seed: int) -> Iterator[Session]:
    """Break the prefix of each call behind a session's first with this probability, behind its first `keep` segments."""
    for session in sessions:
        if session.prefix is None or keep >= len(header.prefixes[session.prefix]):
            yield _broken(header, session, share=share, keep=keep, seed=seed)
        else:
            yield _broken(header, _inlined(header, session), share=share, keep=keep, seed=seed)


def _inlined(header: Header, session: Session) -> Session:
    """Write a shared prefix into the first turn, so that it can be broken."""
    assert session.prefix is not None
    first, *others = session.turns
    return replace(session, prefix=None, turns=(replace(first, add=header.prefixes[session.prefix] + first.add), *others))


def _broken(header: Header, session: Session, *, share: float, keep: int, seed: int) -> Session:
    draws = uniform(seed, "break", session.session)
    turns: list[Turn] = []
    before = len(header.prefixes[session.prefix]) if session.prefix is not None else 0
    for number, (turn, context) in enumerate(zip(session.turns, contexts(header, session), strict=True)):
        if number and next(draws) < share and len(context) > keep:
            kept = min(keep, before if turn.keep is None else min(turn.keep, before))
            renamed = tuple(_renamed(segment, number) for segment in context[keep:])
            turns.append(replace(turn, keep=kept if kept < before else None, add=context[kept:keep] + renamed))
        else:
            turns.append(turn)
        before = len(context)
    return replace(session, turns=tuple(turns))


def _renamed(segment: Segment, number: int) -> Segment:
    name = segment.key if isinstance(segment.key, str) else f"#{segment.key[0]}+{segment.key[1]}"
    return replace(segment, key=f"{name}~{number}")
