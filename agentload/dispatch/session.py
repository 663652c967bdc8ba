"""Play one session on one arm: its growing context, its next turn, and the answers it quotes."""

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
    """A live segment has no answer to fill it with, because the call it quotes failed."""


def live_key(text: str) -> str:
    """Return the segment key of a live answer, made from its text."""
    return f"live:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def cut_answer(reply: Reply, tokens: int) -> str:
    """Cut an answer to about *tokens* tokens, at the end of a word.

    Words are kept in proportion, as words are not tokens.
    """
    if reply.tokens <= tokens:
        return reply.text
    ends = [match.end() for match in _WORD.finditer(reply.text)]
    kept = len(ends) * tokens // reply.tokens
    if not kept:
        return ""
    return reply.text[: ends[kept - 1]]


@dataclass(slots=True)
class Player:
    """Step through a session's turns; build each call from the context of earlier turns."""

    session: Session
    prefix: tuple[Segment, ...]
    live_history: bool = False
    completed_ns: list[int] = field(default_factory=list)
    """When each finished turn was complete, in the order of turns."""
    ready_ns: int = 0
    """When the latest of the next turn's completed dependencies was complete."""
    waiting_for: int = 0
    """How many dependencies of the next turn are not complete."""
    _context: tuple[Segment, ...] = ()
    _context_tokens: int = 0
    _built: int = -1

    @property
    def next_turn(self) -> int:
        """Index of the first turn that is not complete."""
        return len(self.completed_ns)

    @property
    def has_ended(self) -> bool:
        """Whether every turn is complete."""
        return len(self.completed_ns) >= len(self.session.turns)

    def completed(self, turn: int) -> int | None:
        """Return when *turn* (-1: the last) was complete; None if it is not."""
        if turn < 0:
            if not self.has_ended:
                return None
            return self.completed_ns[-1]
        if turn < len(self.completed_ns):
            return self.completed_ns[turn]
        return None

    def is_fixed(self, turn: int) -> bool:
        """Tell whether the turn's context is known without any live answer."""
        added = self.session.turns[turn].add
        return not any(
            segment.source or (self._is_live(turn) and segment.role == "assistant")
            for segment in added
        )

    def _is_live(self, turn: int) -> bool:
        """Tell whether a turn quotes the live answer of the turn before it.

        Never after a turn that only primed a context: its answer was not asked for in full.
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
            quotes = self._is_live(turn)
            for segment in added:
                if quotes or segment.source is not None:
                    added = tuple([self._filled(each, turn, reply_of) for each in added])
                    break
            for segment in added:
                tokens += segment.tokens
            self._context = base + added
            self._context_tokens = tokens
            self._built = turn
        is_own = self.session.start_s is not None
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
            turns_left=len(self.session.turns) - 1 - turn if is_own else None,
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
        text = cut_answer(reply, segment.tokens)
        return replace(
            segment,
            key=live_key(text),
            text=text,
            tokens=min(segment.tokens, reply.tokens),
            source=None,
        )


class Replies:
    """Keep the answers of one arm that live segments or a live history will quote."""

    def __init__(self, quoted: AbstractSet[tuple[str, int]], *, live_history: bool) -> None:
        """Keep nothing yet; *quoted* are the turns that live segments name (-1: the last)."""
        self._live = live_history
        self._wanted = quoted
        self._kept: dict[tuple[str, int], Reply] = {}

    def of(self, ref: TurnRef) -> Reply | None:
        """Return the answer of a turn (-1: its session's last); None if there is none."""
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
        """Keep the answer of a turn."""
        self._kept[session.session, turn] = reply
        if turn + 1 == len(session.turns):
            self._kept[session.session, -1] = reply

    def forget(self, session: Session, *, turns: int) -> None:
        """Drop the answers that only the session's own history quoted; the session is over."""
        if self._live:
            for turn in range(turns):
                if (session.session, turn) not in self._wanted:
                    self._kept.pop((session.session, turn), None)
