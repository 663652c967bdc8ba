"""One session being played on one arm: its growing context,
which turn comes next, and the answers that later turns quote.
"""

import hashlib
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from agentload.model.commands import Call, Reply
from agentload.model.trace import PRIME, UNDER_WAY, Segment, Session, TurnRef

_WORD = re.compile(r"\S+")

ReplyOf = Callable[[TurnRef], Reply | None]


class MissingReplyError(Exception):
    """A live segment has no answer to be filled with, because that call failed."""


def live_key(text: str) -> str:
    """Name a live answer by what it says."""
    return f"live:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def shortened(reply: Reply, tokens: int) -> str:
    """Cut an answer to so many tokens at a word's
    end; where words are not tokens, in proportion.
    """
    if reply.tokens <= tokens:
        return reply.text
    ends = [match.end() for match in _WORD.finditer(reply.text)]
    kept = len(ends) * tokens // reply.tokens
    return reply.text[: ends[kept - 1]] if kept else ""


@dataclass(slots=True)
class Player:
    """Step through a session's turns; build each call from what the turns before it left."""

    session: Session
    prefix: tuple[Segment, ...]
    live_history: bool = False
    completed_ns: list[int] = field(default_factory=list)
    """When each finished turn was complete."""
    ready_ns: int = 0
    """When the last of the next turn's dependencies so far was complete."""
    waiting_for: int = 0
    """Dependencies of the next turn that are still open."""
    _context: tuple[Segment, ...] = ()
    _context_tokens: int = 0
    _built: int = -1

    @property
    def next_turn(self) -> int:
        """Return the turn that is not complete yet."""
        return len(self.completed_ns)

    @property
    def has_ended(self) -> bool:
        """Tell whether every turn is complete."""
        return len(self.completed_ns) >= len(self.session.turns)

    def completed(self, turn: int) -> int | None:
        """Return when *turn* (-1: the last) was complete, or None."""
        if turn < 0:
            return self.completed_ns[-1] if self.has_ended else None
        return self.completed_ns[turn] if turn < len(self.completed_ns) else None

    def is_fixed(self, turn: int) -> bool:
        """Tell whether the turn's context is known without any live answer."""
        added = self.session.turns[turn].add
        return not any(
            segment.source or (self._is_live(turn) and segment.role == "assistant")
            for segment in added
        )

    def _is_live(self, turn: int) -> bool:
        """Tell whether a turn tells what the one before it was answered:
        of one that was only primed, nobody asked for all of it.
        """
        return (
            self.live_history
            and turn > 0
            and self.session.turns[turn - 1].event not in {PRIME, UNDER_WAY}
        )

    def call(self, turn: int, reply_of: ReplyOf) -> Call:
        """Build the call of the turn after the last one built.

        Raises MissingReplyError where a live answer is missing.
        """
        spec = self.session.turns[turn]
        if turn != self._built:
            base = self._context if turn else self.prefix
            tokens = self._context_tokens if turn else sum(segment.tokens for segment in base)
            if spec.keep is not None and spec.keep < len(base):
                base = base[: spec.keep]
                tokens = sum(segment.tokens for segment in base)
            added = spec.add
            for segment in added:
                if segment.source is not None or self._is_live(turn):
                    added = tuple([self._filled(each, turn, reply_of) for each in added])
                    break
            for segment in added:
                tokens += segment.tokens
            self._context = base + added
            self._context_tokens = tokens
            self._built = turn
        return Call(
            session=self.session.session,
            turn=turn,
            workload=self.session.workload,
            context=self._context,
            context_tokens=self._context_tokens,
            output=spec.output,
            model=spec.model,
            asks=spec.asks,
            prime=spec.event in {PRIME, UNDER_WAY},
        )

    def _filled(self, segment: Segment, turn: int, reply_of: ReplyOf) -> Segment:
        source = segment.source
        if source is None and segment.role == "assistant" and self._is_live(turn):
            source = TurnRef(session=self.session.session, turn=turn - 1)
        if source is None:
            return segment
        reply = reply_of(source)
        if reply is None:
            raise MissingReplyError(f"{source.session}[{source.turn}]")
        text = shortened(reply, segment.tokens)
        return replace(
            segment,
            key=live_key(text),
            text=text,
            tokens=min(segment.tokens, reply.tokens),
            source=None,
        )


class Replies:
    """Hold what one arm answered where a live edge, or live history, needs it."""

    def __init__(self, quoted: AbstractSet[tuple[str, int]], *, live_history: bool) -> None:
        """*quoted* are the turns that live edges name (-1: a session's last)."""
        self._live = live_history
        self._wanted = quoted
        self._kept: dict[tuple[str, int], Reply] = {}

    def of(self, ref: TurnRef) -> Reply | None:
        """Return the answer of a turn (-1: its session's last), if there is one."""
        return self._kept.get((ref.session, ref.turn))

    def are_read(self, session: Session, turn: int) -> bool:
        """Tell whether a later call quotes this turn's answer."""
        is_last = turn + 1 == len(session.turns)
        return (
            (self._live and not is_last)
            or (session.session, turn) in self._wanted
            or (is_last and (session.session, -1) in self._wanted)
        )

    def keep(self, session: Session, turn: int, reply: Reply) -> None:
        """Keep an answer."""
        self._kept[session.session, turn] = reply
        if turn + 1 == len(session.turns):
            self._kept[session.session, -1] = reply

    def forget(self, session: Session, *, turns: int) -> None:
        """Drop what only the session's own history needed, now that it is over."""
        if self._live:
            for turn in range(turns):
                if (session.session, turn) not in self._wanted:
                    self._kept.pop((session.session, turn), None)
