"""Carry a family of sessions over an instant: prime what it has sent, play what is to come.

A session that waits at the instant sends its next turn at once. A session that is being answered
asks for the rest of that answer: the call keeps the server as busy as it was,
and counts for nothing. Before either, one priming call sends the server what it
would hold: the context so far and, of an answer under way, the part that is already there.

Sessions that an answered turn has spawned start with the first session's priming call, those of
a later turn as usual. A turn that waited for an answered turn waits no longer; a text that quoted
its answer, or an answer under way, becomes plain text. Tried against hours of steady load, sending
every next turn at once left out answers of minutes, and waiting for the rest of each wait wasted
half of a window.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agentload.layout.timeline import Timeline
from agentload.model.record import Record
from agentload.model.trace import PRIME, UNDER_WAY, Header, Segment, Session, Turn, TurnRef
from agentload.model.walk import last_context


class Carried(Record):
    """Hold what is left of a family at an instant."""

    sessions: tuple[Session, ...]
    idle_s: float
    """How long ago the last of the family's answers ended; 0 if one is under way."""


def carry(header: Header, family: Sequence[Session], timings: Timeline, *, at_s: float) -> Carried:
    """Carry a family over the instant *at_s* seconds after it started."""
    members = {each.session: each for each in family}
    cut = _Cut(header=header, at_s=at_s, timings=timings, members=members)
    root, *others = family
    if not cut.is_begun(root):
        return Carried(sessions=tuple(family), idle_s=0.0)
    spawned = {name for each in family for name in cut.spawned(each)}
    to_come = {name for each in family for name in cut.to_spawn(each)}
    alive = [each for each in others if each.session in spawned and not cut.is_over(each)]
    unspawned = [each for each in others if each.session in to_come - spawned]
    sessions = (
        cut.going_on(root, spawns=[each.session for each in alive]),
        *map(cut.going_on, alive),
        *map(cut.untouched, unspawned),
    )
    return Carried(sessions=sessions, idle_s=cut.idle_s())


class _Cut(Record):
    """A family cut at an instant."""

    header: Header
    at_s: float
    timings: Timeline
    members: Mapping[str, Session]

    def answered(self, session: Session) -> int:
        """Return how many turns of a session are answered."""
        timings = self.timings.get(session.session, ())
        return bisect_right(timings, self.at_s, key=lambda each: each.answered_s)

    def spawned(self, session: Session) -> list[str]:
        """Return the sessions that a session's answered turns have spawned."""
        return [name for turn in session.turns[: self.answered(session)] for name in turn.spawn]

    def to_spawn(self, session: Session) -> list[str]:
        """Return the sessions that a session's other turns will spawn."""
        return [name for turn in session.turns[self.answered(session) :] for name in turn.spawn]

    def is_under_way(self, session: Session) -> bool:
        """Tell whether the turn after the answered ones has been sent."""
        following = self.timings.get(session.session, ())[self.answered(session) :]
        return bool(following) and following[0].sent_s <= self.at_s

    def is_begun(self, session: Session) -> bool:
        """Tell whether a session has sent anything."""
        return self.answered(session) > 0 or self.is_under_way(session)

    def is_over(self, session: Session) -> bool:
        """Tell whether all turns of a session are answered."""
        return self.answered(session) >= len(session.turns)

    def idle_s(self) -> float:
        """Return how long ago the last answer of the family ended."""
        if any(map(self.is_under_way, self.members.values())):
            return 0.0
        ended_s: list[float] = []
        for timings in self.timings.values():
            ended_s += [each.answered_s for each in timings if each.answered_s <= self.at_s]
        return self.at_s - max(ended_s)

    def going_on(self, session: Session, *, spawns: Sequence[str] = ()) -> Session:
        """Return a session that is alive: primed, then the turns that are left.

        Its priming call spawns the sessions *spawns*.
        """
        left = list(self._left(session))
        if not self.is_begun(session):
            return replace(session, turns=(_at_once(left[0]), *left[1:]))
        prime = replace(self._prime(session), spawn=tuple(spawns))
        return replace(session, turns=(prime, *self._begun(session, left)))

    def untouched(self, session: Session) -> Session:
        """Return a session that a turn to come will spawn."""
        return replace(session, turns=tuple(self._left(session)))

    def _begun(self, session: Session, left: Sequence[Turn]) -> Iterator[Turn]:
        if not left:
            return
        first, *others = left
        if not self.is_under_way(session):
            yield from (_at_once(first), *others)
            return
        yield replace(
            first,
            add=(),
            output=first.output - self._said(session),
            keep=None,
            wait=None,
            wait_s=0.0,
            after=(),
            event=UNDER_WAY,
        )
        if others:
            following = others[0]
            keep = len(self._context(session))
            if following.keep is not None:
                keep = min(keep, following.keep)
            yield from (replace(following, keep=keep), *others[1:])

    def _context(self, session: Session) -> tuple[Segment, ...]:
        """Return the context of a session's last call that is answered or under way."""
        sent = self.answered(session) + self.is_under_way(session)
        return last_context(self.header, session, sent)

    def _said(self, session: Session) -> int:
        """Return how many tokens of the answer under way exist; never all of them."""
        number = self.answered(session)
        turn = session.turns[number]
        timing = self.timings[session.session][number]
        lasts_s = max(timing.answered_s - timing.sent_s, 1e-9)
        share = (self.at_s - timing.sent_s) / lasts_s
        return min(int(share * turn.output), turn.output - 1)

    def _prime(self, session: Session) -> Turn:
        """Return the call that sends a server what it would hold of a session."""
        told = self._context(session)
        prefix = self.header.prefix_of(session)
        shared = len(prefix) if told[: len(prefix)] == prefix else 0
        add = [
            segment if segment.source is None else replace(segment, source=None)
            for segment in told[shared:]
        ]
        if self.is_under_way(session) and (said := self._said(session)):
            add.append(Segment(role="assistant", tokens=said, key=f"{session.session}~{len(told)}"))
        latest = self.answered(session)
        if not self.is_under_way(session):
            latest -= 1
        model = session.turns[latest].model
        return Turn(
            add=tuple(add),
            output=1,
            keep=None if shared == len(prefix) else 0,
            event=PRIME,
            model=model,
        )

    def _left(self, session: Session) -> Iterator[Turn]:
        """Yield the turns of a session that are not answered, with the waits that remain."""
        for turn in session.turns[self.answered(session) :]:
            if not turn.after and all(segment.source is None for segment in turn.add):
                yield turn
                continue
            after = tuple(self._moved(ref) for ref in turn.after if self._is_to_come(ref))
            add = tuple(map(self._quoting, turn.add))
            yield replace(turn, after=after, add=add)

    def _quoting(self, segment: Segment) -> Segment:
        if segment.source is None:
            return segment
        is_whole = self._is_to_come(segment.source) and not self._is_partly_said(segment.source)
        return replace(segment, source=self._moved(segment.source) if is_whole else None)

    def _is_partly_said(self, ref: TurnRef) -> bool:
        """Tell whether a turn is under way.

        Then less of its answer is played than a later turn quotes.
        """
        session = self.members[ref.session]
        is_next = ref.place_in(session) == self.answered(session)
        return is_next and self.is_under_way(session)

    def _is_to_come(self, ref: TurnRef) -> bool:
        """Tell whether a turn is still to be answered; False for a turn of another family."""
        session = self.members.get(ref.session)
        if session is None:
            return False
        return ref.place_in(session) >= self.answered(session)

    def _moved(self, ref: TurnRef) -> TurnRef:
        session = self.members[ref.session]
        if ref.turn < 0:
            return ref
        return replace(ref, turn=ref.turn - self.answered(session) + self.is_begun(session))


def _at_once(turn: Turn) -> Turn:
    """Return a turn without its wait, unless the wait starts after a turn that is to come."""
    if turn.after:
        return turn
    return replace(turn, wait=None, wait_s=0.0, recorded=None)
