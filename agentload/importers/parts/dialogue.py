"""Convert a recorded conversation call by call: kept and added pieces, waits, true lengths.

Message lengths are estimates until a call's usage gives the tokens of its prompt.
Then its new pieces are scaled to the right sum: the previous answer has the
server's count, the others share the rest. A system prompt and tool schemas that the
transcript does not show have the tokens of the first prompt beyond its messages.

A call costs what it adds: the context grows in place, and what the last
call sent is compared piece by piece only after a restart or a cut.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

import msgspec

from agentload.importers.parts.blocks import common_start
from agentload.importers.parts.chat import ContextPiece, apportion
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.reuse import Trail
from agentload.model.trace import Recorded, Session, Turn, TurnRef, Wait

_JITTER_S: Final = 1.0
"""Judgement: clocks in one log may disagree by this much without a jump."""


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
        lead = self._context[:1] if self._context and self._context[0].key == self.lead else []
        self._leave()
        self._context = [*lead, *self.opening, *pieces]

    def grow(self, prompt: int, key: str) -> None:
        """Extend the next context to *prompt* tokens; restart it if it is too long already."""
        same, tokens = (self._sent, self._sent_tokens) if self._before is None else (0, 0)
        spare = prompt - tokens - sum(piece.tokens for piece in self._context[same:])
        if spare > 0:
            self._context.append(ContextPiece(role="user", tokens=spare, key=key))
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
        joins: Sequence[tuple[float, str]] = (),
    ) -> None:
        """Send the context and append the answer.

        `asked` is what the call waited for, if the roles of its new pieces do not show it. `joins`
        are the children that it waited for, in the order in which they were complete, with when.
        """
        keep, tokens = self._send(usage, place)
        pieces, sent = (
            self._context[keep:],
            self._sent if self._before is None else len(self._before),
        )
        output = usage.output
        if output is None:
            self.intake.notes.estimate("output tokens of a call: estimated from its answer")
            output = sum(piece.tokens for piece in answer)
        if usage.prompt is None:
            self.intake.notes.estimate("prompt tokens of a call: estimated from its messages")
        joined_s = joins[-1][0] if joins else None
        wait, wait_s = self._pause(asked or _asked(pieces), timing, joined_s, place)
        added = tuple(piece.segment() for piece in pieces)
        self._trail = self._trail or self.intake.source.trail()
        self._trail.call(added, keep=keep)
        self.turns.append(
            Turn(
                add=added,
                output=output,
                wait=wait,
                wait_s=wait_s,
                after=tuple(TurnRef(session=child, turn=-1) for _, child in joins),
                keep=None if keep == sent else keep,
                event=event,
                model=model,
                thinking=usage.thinking or None,
                recorded=self._recorded(timing, usage),
                context=usage.prompt if usage.prompt != tokens else None,
            )
        )
        self._sent, self._sent_tokens, self._before = len(self._context), tokens, None
        self._context += self._counted(answer, output)
        self.ready_s = timing.done_s if timing.done_s is not None else timing.sent_s
        self.done_s.append(self.ready_s)

    def spawn(self, child: str, at_s: float) -> int:
        """Make the last call complete by then spawn a session; return the call's number."""
        number = max(
            (
                number
                for number, done_s in enumerate(self.done_s)
                if done_s is not None and done_s <= at_s
            ),
            default=0,
        )
        self.turns[number] = replace(self.turns[number], spawn=(*self.turns[number].spawn, child))
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
        if self._before is None:
            base, same, tokens = None, self._sent, self._sent_tokens
        else:
            base = self._before[
                : common_start(
                    *(
                        ((piece.key, piece.role) for piece in pieces)
                        for pieces in (self._before, self._context)
                    )
                )
            ]
            same, tokens = len(base), _tokens(base)
        new, prompt = self._context[same:], usage.prompt
        if prompt is not None and self.lead is not None and not self._has_led:
            self._has_led = True
            base, new = [], self._context
            tokens = max(0, prompt - _tokens(new))
            if tokens:
                self.intake.notes.estimate(
                    "system prompt and tools of a session: the tokens of its first prompt "
                    "beyond its messages"
                )
                base, prompt = [ContextPiece(role="system", tokens=tokens, key=self.lead)], None
        if prompt is not None:
            least = sum(piece.tokens if piece.size else 1 for piece in new)
            if prompt - tokens < least:
                self.intake.notes.meet(
                    place,
                    "the context shrank without a record: cut at the cached prefix, or by length",
                )
                whole = self._context[:same] if base is None else base
                base = _cut(whole, min(prompt - least, usage.cached or prompt - _tokens(new)))
                tokens = _tokens(base)
            new = self._fitted(new, prompt - tokens)
            self._lengths.update((piece.key, piece.tokens) for piece in new)
        tokens += _tokens(new)
        if base is None:
            self._context[same:] = new
            return same, tokens
        before, self._context = self._leave(), [*base, *new]
        return common_start(before, self._context), tokens

    def _fitted(self, new: Sequence[ContextPiece], room: int) -> list[ContextPiece]:
        """Scale the uncounted pieces, or all if that is not enough; images keep their size."""
        known = [piece.tokens if piece.size else self._lengths.get(piece.key) for piece in new]
        free = [index for index, length in enumerate(known) if length is None]
        spare = room - sum(length for length in known if length is not None)
        if (spare and not free) or spare < len(free):
            free = [index for index, piece in enumerate(new) if piece.size is None]
            spare = room - sum(piece.tokens for piece in new if piece.size is not None)
        fitted = [
            piece if length is None else msgspec.structs.replace(piece, tokens=length)
            for piece, length in zip(new, known, strict=True)
        ]
        for index, length in zip(
            free, apportion([new[index].tokens for index in free], max(0, spare)), strict=True
        ):
            fitted[index] = msgspec.structs.replace(new[index], tokens=length)
        return fitted

    def _counted(self, answer: Sequence[ContextPiece], output: int) -> list[ContextPiece]:
        lengths = apportion([piece.tokens for piece in answer], output)
        counted = [
            msgspec.structs.replace(piece, tokens=length)
            for piece, length in zip(answer, lengths, strict=True)
            if length
        ]
        self._lengths.update((piece.key, piece.tokens) for piece in counted)
        return counted

    def _pause(
        self, asked: Wait | None, timing: CallTiming, joined_s: float | None, place: str
    ) -> tuple[Wait | None, float]:
        ready = [
            at
            for at in ((self.ready_s if self.turns else self.spawned_s), joined_s)
            if at is not None
        ]
        wait = asked if self.turns else None
        if not ready or timing.sent_s is None:
            return wait, 0.0
        gap = timing.sent_s - max(ready)
        if gap < -_JITTER_S:
            self.intake.notes.meet(
                place, "a call starts before its predecessor has ended: played after it"
            )
        return wait, round(max(0.0, gap), 3)

    def _recorded(self, timing: CallTiming, usage: CallUsage) -> Recorded | None:
        sent, first, done = timing.sent_s, timing.first_s, timing.done_s
        if self.began_s is None and sent is not None:
            self.began_s = round(max(0.0, sent - self.origin_s), 3)
        is_start = not self.turns and self.spawned_s is None
        recorded = Recorded(
            ttft_s=None if sent is None or first is None else round(max(0.0, first - sent), 3),
            api_s=None if sent is None or done is None else round(max(0.0, done - sent), 3),
            cached=usage.cached,
            start_s=None if sent is None or is_start else round(max(0.0, sent - self.origin_s), 3),
        )
        return None if recorded == Recorded() else recorded


def _asked(added: Sequence[ContextPiece]) -> Wait | None:
    """Return what a call waited for: results, even with notes after them, otherwise the user."""
    roles = [
        piece.role for piece in takewhile(lambda piece: piece.role != "assistant", reversed(added))
    ]
    if "tool" in roles:
        return "tool"
    return "user" if {"user", "image"} & set(roles) else None


def _tokens(pieces: Iterable[ContextPiece]) -> int:
    return sum(piece.tokens for piece in pieces)


def _cut(base: Sequence[ContextPiece], tokens: int) -> list[ContextPiece]:
    """Return the leading pieces with this many tokens in all, cutting the last if needed."""
    kept: list[ContextPiece] = []
    for piece in base:
        part = min(piece.tokens, tokens)
        if part < 1 or (part < piece.tokens and piece.size is not None):
            break
        kept.append(piece if part == piece.tokens else msgspec.structs.replace(piece, tokens=part))
        tokens -= part
    return kept
