"""Split sessions in the middle: what comes first is told in one priming turn, and the rest is played.

A trace of long sessions takes hours before its contexts are long. A split session begins where it was after a part of its turns, with one
call that sends the whole context and is answered by one token: it fills the cache, and is marked `prime`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from agentload.degrade.draw import uniform
from agentload.model.trace import PRIME, Header, Segment, Session, Turn, TurnRef
from agentload.model.walk import contexts


def split(header: Header, sessions: Iterable[Session], *, share: float, seed: int, first: int | None = None) -> Iterator[Session]:
    """Split each session of three turns or more with this probability, at a turn drawn from all but its first and last.

    A spawned session begins when it is spawned: it is never split. What the told turns had spawned is left out, and so are waits for it;
    what others quoted of it stands as text. With *first*, only so many sessions that start by themselves are meant.
    """
    cuts = _Cuts()
    roots = 0
    for session in sessions:
        if session.session in cuts.dropped:
            cuts.dropped |= {child for turn in session.turns for child in turn.spawn}
            continue
        roots += session.start_s is not None
        is_meant = session.start_s is not None and len(session.turns) >= 3 and (first is None or roots <= first)
        at = _drawn(session, share=share, seed=seed) if is_meant else 0
        if at:
            cuts.told[session.session] = at
            cuts.dropped |= {child for turn in session.turns[:at] for child in turn.spawn}
        yield _from(header, session, at, cuts)


def _drawn(session: Session, *, share: float, seed: int) -> int:
    """Draw how many turns are told; 0: the session stays whole."""
    draws = uniform(seed, "split", session.session)
    return 1 + int(next(draws) * (len(session.turns) - 2)) if next(draws) < share else 0


@dataclass(slots=True)
class _Cuts:
    told: dict[str, int] = field(default_factory=dict)
    """How many turns of a session are told instead of played; they are its turn 0 now."""
    dropped: set[str] = field(default_factory=set)

    def heard(self, turn: Turn) -> Turn:
        """Return a turn that refers to what is still there, under its new number."""
        if not turn.after and all(segment.source is None for segment in turn.add):
            return turn
        after = tuple(self._moved(ref) for ref in turn.after if ref.session not in self.dropped)
        return replace(turn, after=after, add=tuple(map(self._quoted, turn.add)))

    def _quoted(self, segment: Segment) -> Segment:
        source = segment.source
        if source is None:
            return segment
        is_gone = source.session in self.dropped or 0 <= source.turn < self.told.get(source.session, 0)
        return replace(segment, source=None if is_gone else self._moved(source))

    def _moved(self, ref: TurnRef) -> TurnRef:
        at = self.told.get(ref.session, 0)
        return replace(ref, turn=max(0, ref.turn - at + 1)) if at and ref.turn >= 0 else ref


def _from(header: Header, session: Session, at: int, cuts: _Cuts) -> Session:
    turns = [cuts.heard(turn) for turn in session.turns]
    if not at:
        return session if all(new is old for new, old in zip(turns, session.turns, strict=True)) else replace(session, turns=tuple(turns))
    *_, told = (context for _, context in zip(range(at), contexts(header, session), strict=False))
    lead = len(header.prefixes[session.prefix]) if session.prefix is not None else 0
    shared = lead if lead and told[:lead] == header.prefixes[session.prefix or ""] else 0
    add = tuple(replace(segment, source=None) for segment in told[shared:])
    prime = Turn(add=add, output=1, keep=None if shared == lead else 0, event=PRIME, model=turns[at - 1].model)
    begin = replace(turns[at], wait=None, wait_s=0.0, recorded=None)
    return replace(session, turns=(prime, begin, *turns[at + 1 :]))
