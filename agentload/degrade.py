"""Make a trace harder to serve: pure functions from sessions to sessions, drawn by a seed.

Recorded traces are often kinder than production: nearly every call hits the prefix
cache, users do not pause. These functions show how much a result depends on that.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from random import Random

from agentload.model.trace import PRIME, Header, Recorded, Segment, Session, Turn, TurnRef
from agentload.model.walk import context_tokens, contexts, families, last_context
from agentload.plugins import generator


def take_sample(sessions: Iterable[Session], *, share: float, seed: int) -> Iterator[Session]:
    """Keep each root session with this probability, together with the sessions it spawns.

    Waits for sessions that are dropped are dropped too.
    """
    kept: set[str] = set()
    is_kept = False
    for session in sessions:
        if session.start_s is not None:
            is_kept = _drawn(seed, "sample", session).random() < share
        if is_kept:
            kept.add(session.session)
            yield _without(session, kept)


def _without(session: Session, kept: set[str]) -> Session:
    """Drop waits for sessions that are neither kept nor this one's children, which follow."""
    known = kept | {child for turn in session.turns for child in turn.spawn}
    if all(ref.session in known for turn in session.turns for ref in turn.after):
        return session
    turns = (
        replace(turn, after=tuple(ref for ref in turn.after if ref.session in known))
        for turn in session.turns
    )
    return replace(session, turns=tuple(turns))


def start_midway(
    header: Header, sessions: Iterable[Session], *, share: float, seed: int
) -> Iterator[Session]:
    """Start sessions mid-way, each with probability *share*, at a turn that is drawn.

    Sessions of three turns or more may start so, at any turn but the first and the last.
    A trace of long sessions takes hours to reach long contexts. A session started
    mid-way first sends its whole context in one call with an answer of one token,
    marked `prime`, which fills the cache. Spawned sessions start when they are spawned
    and never split. What the skipped turns had spawned is dropped, and so are waits
    for it; quotes of it become text.
    """
    cuts = _Cuts()
    for session in sessions:
        if session.session in cuts.dropped:
            cuts.dropped |= {child for turn in session.turns for child in turn.spawn}
            continue
        at = 0
        if session.start_s is not None and len(session.turns) >= 3:
            at = _told(session, share=share, seed=seed)
        if at:
            cuts.told[session.session] = at
            cuts.dropped |= {child for turn in session.turns[:at] for child in turn.spawn}
        yield _from(header, session, at, cuts)


def _told(session: Session, *, share: float, seed: int) -> int:
    """Draw how many turns to skip; 0 leaves the session whole."""
    rng = _drawn(seed, "split", session)
    if rng.random() < share:
        return 1 + int(rng.random() * (len(session.turns) - 2))
    return 0


@dataclass(slots=True)
class _Cuts:
    told: dict[str, int] = field(default_factory=dict)
    """Number of skipped turns by session; they become the session's turn 0."""
    dropped: set[str] = field(default_factory=set)

    def heard(self, turn: Turn) -> Turn:
        """Return a turn with its references renumbered and dropped ones removed."""
        if not turn.after and all(segment.source is None for segment in turn.add):
            return turn
        after = tuple(self._moved(ref) for ref in turn.after if ref.session not in self.dropped)
        return replace(turn, after=after, add=tuple(map(self._quoted, turn.add)))

    def _quoted(self, segment: Segment) -> Segment:
        source = segment.source
        if source is None:
            return segment
        is_gone = source.session in self.dropped or 0 <= source.turn < self.told.get(
            source.session, 0
        )
        return replace(segment, source=None if is_gone else self._moved(source))

    def _moved(self, ref: TurnRef) -> TurnRef:
        at = self.told.get(ref.session, 0)
        if at and ref.turn >= 0:
            return replace(ref, turn=max(0, ref.turn - at + 1))
        return ref


def _from(header: Header, session: Session, at: int, cuts: _Cuts) -> Session:
    turns = [cuts.heard(turn) for turn in session.turns]
    if not at:
        if all(new is old for new, old in zip(turns, session.turns, strict=True)):
            return session
        return replace(session, turns=tuple(turns))
    told = last_context(header, session, at)
    lead = len(header.prefix_of(session))
    shared = lead if lead and told[:lead] == header.prefixes[session.prefix or ""] else 0
    add = tuple(replace(segment, source=None) for segment in told[shared:])
    prime = Turn(
        add=add,
        output=1,
        keep=None if shared == lead else 0,
        event=PRIME,
        model=turns[at - 1].model,
    )
    begin = replace(turns[at], wait=None, wait_s=0.0, recorded=None)
    return replace(session, turns=(prime, begin, *turns[at + 1 :]))


def break_prefixes(
    header: Header, sessions: Iterable[Session], *, share: float, keep: int, seed: int
) -> Iterator[Session]:
    """Break the prefix of calls, each with probability *share*, after *keep* segments.

    A session's first call is never broken. A broken call sends the rest of its context
    under new keys, as if a tool's schema or a date before the history had changed: same
    lengths, no hits after the break. Later calls of the session keep the new keys.
    """
    for session in sessions:
        if session.prefix is None or keep >= len(header.prefixes[session.prefix]):
            yield _broken(header, session, share=share, keep=keep, seed=seed)
        else:
            yield _broken(header, _inlined(header, session), share=share, keep=keep, seed=seed)


def _inlined(header: Header, session: Session) -> Session:
    """Move a shared prefix into the first turn, so that it can be broken."""
    assert session.prefix is not None
    first, *others = session.turns
    return replace(
        session,
        prefix=None,
        turns=(replace(first, add=header.prefixes[session.prefix] + first.add), *others),
    )


def _broken(header: Header, session: Session, *, share: float, keep: int, seed: int) -> Session:
    rng = _drawn(seed, "break", session)
    turns: list[Turn] = []
    before = len(header.prefix_of(session))
    for number, (turn, context) in enumerate(
        zip(session.turns, contexts(header, session), strict=True)
    ):
        if number and rng.random() < share and len(context) > keep:
            kept = min(keep, before if turn.keep is None else min(turn.keep, before))
            renamed = tuple(_renamed(segment, number) for segment in context[keep:])
            turns.append(
                replace(
                    turn, keep=kept if kept < before else None, add=context[kept:keep] + renamed
                )
            )
        else:
            turns.append(turn)
        before = len(context)
    return replace(session, turns=tuple(turns))


def _renamed(segment: Segment, number: int) -> Segment:
    name = segment.key if isinstance(segment.key, str) else f"#{segment.key[0]}+{segment.key[1]}"
    return replace(segment, key=f"{name}~{number}")


def shorten(header: Header, sessions: Iterable[Session], *, tokens: int) -> Iterator[Session]:
    """End each session before its first turn that needs more than *tokens*, its answer included.

    Sessions that the cut turns would have spawned are dropped too. A turn that waited for
    a cut turn waits for the last that is left; a quote of a shortened session becomes text.
    """
    left: dict[str, int] = {}
    dropped: set[str] = set()
    for family in families(sessions):
        for session in family:
            needed = (
                sent + turn.output
                for sent, turn in zip(context_tokens(header, session), session.turns, strict=True)
            )
            fitting = (
                0
                if session.session in dropped
                else sum(1 for _ in takewhile(lambda need: need <= tokens, needed))
            )
            dropped |= {child for turn in session.turns[fitting:] for child in turn.spawn}
            if fitting < len(session.turns):
                left[session.session] = fitting
        for session in family:
            if left.get(session.session, 1):
                yield _mapped(
                    replace(session, turns=session.turns[: left.get(session.session)]),
                    lambda turn: _hearing(turn, left),
                )


def _hearing(turn: Turn, left: Mapping[str, int]) -> Turn:
    """Return a turn whose references are to turns that are left."""
    if not any(
        ref.session in left
        for ref in (*turn.after, *(each.source for each in turn.add if each.source is not None))
    ):
        return turn
    after = tuple(
        replace(ref, turn=-1) if ref.turn >= left.get(ref.session, math.inf) else ref
        for ref in turn.after
        if left.get(ref.session, 1)
    )
    add = tuple(
        replace(each, source=None)
        if each.source is not None and each.source.session in left
        else each
        for each in turn.add
    )
    return replace(turn, after=after, add=add)


def cap_waits(sessions: Iterable[Session], *, cap_s: float) -> Iterator[Session]:
    """Cap every wait; session starts stay, and the recorded starts of calls are dropped."""
    return (_mapped(session, lambda turn: _capped(turn, cap_s)) for session in sessions)


def scale_times(sessions: Iterable[Session], *, scale: float) -> Iterator[Session]:
    """Multiply starts, waits and recorded starts; service times stay."""
    for session in sessions:
        start_s = None if session.start_s is None else round(session.start_s * scale, 6)
        yield replace(_mapped(session, lambda turn: _scaled(turn, scale)), start_s=start_s)


def _mapped(session: Session, change: Callable[[Turn], Turn]) -> Session:
    return replace(session, turns=tuple(map(change, session.turns)))


def _capped(turn: Turn, cap_s: float) -> Turn:
    recorded = None if turn.recorded is None else replace(turn.recorded, start_s=None)
    return replace(
        turn, wait_s=min(turn.wait_s, cap_s), recorded=None if recorded == Recorded() else recorded
    )


def _scaled(turn: Turn, scale: float) -> Turn:
    recorded = turn.recorded
    if recorded is not None and recorded.start_s is not None:
        recorded = replace(recorded, start_s=round(recorded.start_s * scale, 6))
    return replace(turn, wait_s=round(turn.wait_s * scale, 6), recorded=recorded)


def _drawn(seed: int, purpose: str, session: Session) -> Random:
    """Return a session's own generator for a purpose: the order of changes does not matter."""
    return generator(f"{seed}\0{purpose}\0{session.session}")
