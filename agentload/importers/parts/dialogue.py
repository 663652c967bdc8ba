"""Convert a recorded conversation call by call: kept and added pieces, waits, true lengths.

Message lengths are estimates until a call's usage gives the tokens of its prompt.
Then its new pieces are scaled to the right sum: the previous answer has the
server's count, the others share the rest. A system prompt and tool schemas that the
transcript does not show have the tokens of the first prompt beyond its messages.

A call costs what it adds: the context grows in place, and what the last
call sent is compared piece by piece only after a restart or a cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from agentload.importers.parts.chat import ContextPiece, apportion, total
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.reuse import Trail
from agentload.model.trace import Recorded, Role, Session, Turn, TurnRef, Wait
from agentload.model.walk import common_start

_JITTER_S: Final = 1.0
"""Judgement: clocks in one log may disagree by this much without a jump."""
_SHRANK: Final = "the context shrank without a record: cut at the cached prefix, or by length"


class CallTiming(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Seconds at which a call was sent, gave its first token and ended; None if not recorded."""

    sent_s: float | None = None
    first_s: float | None = None
    done_s: float | None = None


class CallUsage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Token counts of the server; None if not counted."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    thinking: int | None = None


Join: TypeAlias = tuple[float, str]
"""When a child session was complete, and its name."""


@dataclass(slots=True, kw_only=True)
class Dialogue:
    """A conversation being converted to a session."""

    intake: Intake
    origin_s: float
    """Start of the trace, on the source's time axis."""
    lead: str | None = None
    """Identity of a system prompt and tools that the source does not show; None if it shows all."""
    opening: tuple[ContextPiece, ...] = ()
    """The start of every context, if the source has it apart from the messages."""
    spawned_s: float | None = None
    """When the spawning call was complete; None for a root conversation."""
    turns: list[Turn] = field(default_factory=list)
    ready_s: float | None = None
    """When the last call was complete, if known."""
    done_s: list[float | None] = field(default_factory=list)
    _context: list[ContextPiece] = field(default_factory=list)
    _sent: int = 0
    """Number of leading pieces of the context that the last call sent unchanged."""
    _sent_tokens: int = 0
    _before: list[ContextPiece] | None = None
    """Pieces that the last call sent, if the context does not start with them any more."""
    _lengths: dict[str, int] = field(default_factory=dict)
    _trail: Trail | None = None
    began_s: float | None = None
    """Start on the trace's axis: the time of the first call, if known."""
    _has_led: bool = False

    def __post_init__(self) -> None:
        self._context = list(self.opening)

    def add(self, pieces: Iterable[ContextPiece]) -> None:
        """Add these to the next call's context."""
        self._context.extend(pieces)

    def restart(self, pieces: Iterable[ContextPiece]) -> None:
        """Replace the next call's context, as after a compaction; the opening stays."""
        lead = [piece for piece in self._context[:1] if piece.key == self.lead]
        self._leave()
        self._context = [*lead, *self.opening, *pieces]

    def grow(self, prompt: int, key: str) -> None:
        """Extend the next context to *prompt* tokens; restart it if it is too long already."""
        is_whole = self._before is None
        same = self._sent if is_whole else 0
        tokens = self._sent_tokens if is_whole else 0
        spare = prompt - tokens - total(self._context[same:])
        if spare > 0:
            self.add([ContextPiece(role="user", tokens=spare, key=key)])
        else:
            self.restart([ContextPiece(role="user", tokens=prompt, key=key)])

    def call(
        self,
        *,
        timing: CallTiming,
        usage: CallUsage,
        answer: Sequence[ContextPiece] = (),
        place: str,
        model: str | None = None,
        event: str | None = None,
        asked: Wait | None = None,
        joins: Sequence[Join] = (),
    ) -> None:
        """Send the context and append the answer.

        `asked` is what the call waited for, if the roles of its new pieces do not show it. `joins`
        are the children that it waited for, in the order in which they were complete, with when.
        """
        keep, tokens = self._send(usage, place)
        pieces = self._context[keep:]
        sent = self._sent if self._before is None else len(self._before)
        output = usage.output
        if output is None:
            self.intake.notes.estimate("output tokens of a call: estimated from its answer")
            output = total(answer)
        if usage.prompt is None:
            self.intake.notes.estimate("prompt tokens of a call: estimated from its messages")
        before_s = self.ready_s if self.turns else self.spawned_s
        joined_s = [at_s for at_s, _ in joins]
        wait_s = self._pause(timing.sent_s, [before_s, *joined_s], place)
        wait = asked or _waited_for(pieces)
        added = tuple(piece.segment() for piece in pieces)
        self._trail = self._trail or self.intake.source.trail()
        self._trail.call(added, keep=keep)
        self.turns.append(
            Turn(
                add=added,
                output=output,
                wait=wait if self.turns else None,
                wait_s=wait_s,
                after=tuple(TurnRef(session=child, turn=-1) for _, child in joins),
                keep=None if keep == sent else keep,
                event=event,
                model=model,
                thinking=usage.thinking or None,
                recorded=self._recording(timing, usage),
                context=usage.prompt if usage.prompt != tokens else None,
            )
        )
        self._before = None
        self._sent = len(self._context)
        self._sent_tokens = tokens
        self._context += self._answer_pieces(answer, output)
        self.ready_s = timing.sent_s if timing.done_s is None else timing.done_s
        self.done_s.append(self.ready_s)

    def spawn(self, child: str, at_s: float) -> int:
        """Make the last call complete by then spawn a session; return the call's number."""
        number = 0
        for call, done_s in enumerate(self.done_s):
            if done_s is not None and done_s <= at_s:
                number = call
        turn = self.turns[number]
        self.turns[number] = replace(turn, spawn=(*turn.spawn, child))
        return number

    def session(self, name: str, *, workload: str) -> Session:
        """Return the session; only a root session has a start time."""
        return Session(
            session=name,
            workload=workload,
            turns=tuple(self.turns),
            start_s=None if self.spawned_s is not None else self.began_s or 0.0,
        )

    def _leave(self) -> list[ContextPiece]:
        """Return what the last call sent, kept before the context's beginning changes."""
        if self._before is None:
            self._before = self._context[: self._sent]
        return self._before

    def _send(self, usage: CallUsage, place: str) -> tuple[int, int]:
        """Give the context's pieces their true lengths.

        Returns how many leading pieces the last call sent as they are now, and the
        tokens of all pieces.
        """
        base, same, tokens = self._kept_of_last_call()
        news = self._context[same:]
        prompt = usage.prompt
        if prompt is not None and self.lead is not None and not self._has_led:
            self._has_led = True
            base = self._unshown(self.lead, prompt)
            news = self._context
            tokens = total(base)
            prompt = None if base else prompt
        if prompt is not None:
            least = sum(piece.tokens if piece.pixels else 1 for piece in news)
            if prompt - tokens < least:
                self.intake.notes.meet(place, _SHRANK)
                whole = self._context[:same] if base is None else base
                cached = usage.cached or prompt - total(news)
                base = _cut(whole, min(prompt - least, cached))
                tokens = total(base)
            news = self._scale_to(news, prompt - tokens)
            self._remember(news)
        tokens += total(news)
        if base is None:
            self._context[same:] = news
            return same, tokens
        before = self._leave()
        self._context = [*base, *news]
        return common_start(before, self._context), tokens

    def _kept_of_last_call(self) -> tuple[list[ContextPiece] | None, int, int]:
        """Return what the context still has of the last call: pieces, their number, their tokens.

        The pieces are None where they are all that the call sent.
        """
        if self._before is None:
            return None, self._sent, self._sent_tokens
        same = common_start(_names(self._before), _names(self._context))
        base = self._before[:same]
        return base, same, total(base)

    def _unshown(self, lead: str, prompt: int) -> list[ContextPiece]:
        """Return the system prompt and tools that the source does not show, if there are any."""
        tokens = max(0, prompt - total(self._context))
        if not tokens:
            return []
        self.intake.notes.estimate(
            "system prompt and tools of a session: the tokens of its first prompt "
            "beyond its messages"
        )
        return [ContextPiece(role="system", tokens=tokens, key=lead)]

    def _scale_to(self, news: Sequence[ContextPiece], room: int) -> list[ContextPiece]:
        """Scale the uncounted pieces, or all if that is not enough; images keep their size."""
        counted = [piece.tokens if piece.pixels else self._lengths.get(piece.key) for piece in news]
        free = counted.count(None)
        spare = room - sum(filter(None, counted))
        if (spare and not free) or spare < free:
            counted = [piece.tokens if piece.pixels else None for piece in news]
        return _with_lengths(news, counted, room)

    def _answer_pieces(self, answer: Sequence[ContextPiece], output: int) -> list[ContextPiece]:
        """Return an answer's pieces with the lengths that share its tokens."""
        unknown = [None] * len(answer)
        kept = [piece for piece in _with_lengths(answer, unknown, output) if piece.tokens]
        self._remember(kept)
        return kept

    def _remember(self, pieces: Iterable[ContextPiece]) -> None:
        self._lengths.update((piece.key, piece.tokens) for piece in pieces)

    def _pause(self, sent_s: float | None, ready_s: Sequence[float | None], place: str) -> float:
        """Return the seconds between the last thing that a call needed and its start."""
        known_s = [at_s for at_s in ready_s if at_s is not None]
        if sent_s is None or not known_s:
            return 0.0
        gap_s = sent_s - max(known_s)
        if gap_s < -_JITTER_S:
            early = "a call starts before its predecessor has ended: played after it"
            self.intake.notes.meet(place, early)
        return round(max(0.0, gap_s), 3)

    def _recording(self, timing: CallTiming, usage: CallUsage) -> Recorded | None:
        """Return what was recorded of a call; when the first one started, its session says."""
        sent_s = timing.sent_s
        at_s = _seconds_between(self.origin_s, sent_s)
        if self.began_s is None:
            self.began_s = at_s
        is_start = not self.turns and self.spawned_s is None
        return recording(
            Recorded(
                ttft_s=_seconds_between(sent_s, timing.first_s),
                api_s=_seconds_between(sent_s, timing.done_s),
                cached=usage.cached,
                start_s=None if is_start else at_s,
            )
        )


def recording(recorded: Recorded) -> Recorded | None:
    """Return what was recorded of a call; None where that is nothing."""
    return None if recorded == Recorded() else recorded


def _seconds_between(start_s: float | None, end_s: float | None) -> float | None:
    if start_s is None or end_s is None:
        return None
    return round(max(0.0, end_s - start_s), 3)


def _names(pieces: Iterable[ContextPiece]) -> Iterator[tuple[str, Role]]:
    return ((piece.key, piece.role) for piece in pieces)


def _with_lengths(
    pieces: Sequence[ContextPiece], lengths: Sequence[int | None], room: int
) -> list[ContextPiece]:
    """Give pieces these lengths; those without one share the rest of the room."""
    pairs = list(zip(pieces, lengths, strict=True))
    free = [piece.tokens for piece, length in pairs if length is None]
    spare = room - sum(filter(None, lengths))
    shares = iter(apportion(free, max(0, spare)))
    filled = []
    for piece, length in pairs:
        tokens = next(shares) if length is None else length
        filled.append(msgspec.structs.replace(piece, tokens=tokens))
    return filled


def _waited_for(added: Sequence[ContextPiece]) -> Wait | None:
    """Return what a call waited for: results, even with notes after them, otherwise the user."""
    said = takewhile(lambda piece: piece.role != "assistant", reversed(added))
    roles = {piece.role for piece in said}
    if "tool" in roles:
        return "tool"
    return "user" if {"user", "image"} & roles else None


def _cut(base: Sequence[ContextPiece], tokens: int) -> list[ContextPiece]:
    """Return the leading pieces with this many tokens in all, cutting the last if needed."""
    kept: list[ContextPiece] = []
    for piece in base:
        part = min(piece.tokens, tokens)
        is_cut = part < piece.tokens
        if part < 1 or (is_cut and piece.pixels is not None):
            break
        kept.append(msgspec.structs.replace(piece, tokens=part) if is_cut else piece)
        tokens -= part
    return kept
