"""Cut a trace into blocks of about equal size, without parting sessions that belong together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentload.model.plan import Block
from agentload.model.trace import Session, Turn


def dependency_groups(sessions: Iterable[Session]) -> list[list[Session]]:
    """Group sessions that spawn, await or quote each other, in order of their first member."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.setdefault(name, name)) != name:
            leader[name] = name = leader[above]
        return name

    kept = list(sessions)
    for session in kept:
        find(session.session)
        for turn in session.turns:
            for partner in _partners(turn):
                leader[find(partner)] = find(session.session)
    groups: dict[str, list[Session]] = {}
    for session in kept:
        groups.setdefault(find(session.session), []).append(session)
    return list(groups.values())


def _partners(turn: Turn) -> list[str]:
    """Return the sessions that a turn spawns, awaits or quotes."""
    awaited = [ref.session for ref in turn.after]
    quoted = [segment.source.session for segment in turn.add if segment.source]
    return [*turn.spawn, *awaited, *quoted]


def cut(sessions: Iterable[Session], count: int) -> tuple[Block, ...]:
    """Cut *sessions* into at most *count* blocks of about equally many turns.

    Neighbours in time stay together, and so do families.
    """
    if count == 1:
        return (Block(index=0, sessions=sessions),)
    groups = dependency_groups(sessions)
    turns = [sum(len(s.turns) for s in group) for group in groups]
    total = sum(turns)
    count = min(count, len(groups))
    blocks: list[list[Session]] = [[]]
    before = 0
    for position, (group, size) in enumerate(zip(groups, turns, strict=True)):
        left_groups = len(groups) - position
        left_blocks = count - len(blocks)
        is_full = before + size / 2 >= total * len(blocks) / count
        if blocks[-1] and left_blocks > 0 and (is_full or left_groups == left_blocks):
            blocks.append([])
        blocks[-1].extend(group)
        before += size
    return tuple(Block(index=i, sessions=_from_zero(block)) for i, block in enumerate(blocks))


def _from_zero(sessions: Sequence[Session]) -> tuple[Session, ...]:
    first_s = min((s.start_s for s in sessions if s.start_s is not None), default=0.0)
    moved = []
    for session in sessions:
        if session.start_s is None:
            moved.append(session)
        else:
            moved.append(replace(session, start_s=session.start_s - first_s))
    return tuple(moved)
