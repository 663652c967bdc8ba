"""Make sessions of the calls of a log: of sized calls, and of spoken calls."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec

from agentload.importers.parts.blocks import common_ids, segments
from agentload.importers.parts.chat import ContextPiece
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue, recording
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.order import CallGroup, Grid, by_session, groups
from agentload.importers.parts.reuse import identity
from agentload.importers.parts.transcripts import TranscriptEntry, play
from agentload.model.trace import Recorded, Segment, Session, Turn, Wait, total_tokens
from agentload.model.walk import common_start

Holds = Literal["context", "news", "unknown"]
"""What a call's length and ids describe.

`context`: its whole context; `news`: only what is new; `unknown`: the whole context
without a constant prefix.
"""
_WORD: Final = (1 << 64) - 1
_SPREAD: Final = 0x9E3779B97F4A7C15
"""Odd, and far from a power of two: each message changes all bits of a chain of messages."""


def session_name(named: object, otherwise: str) -> str:
    """Return the session of a call: the log's own *named*, which meets no name that is made here.

    Where the log names none, it is *otherwise*.
    """
    return otherwise if named is None else f"+{named}"


class SizedCall(msgspec.Struct, kw_only=True):
    """One call of a log that has lengths, and perhaps the ids of blocks."""

    session: str
    at_s: float
    place: str
    prompt: int
    output: int
    ids: list[int] = []
    pieces: list[ContextPiece] = []
    """The identified start of its context; the rest has no identity."""
    delay_s: float | None = None
    """Wait after the previous answer, if logged."""
    api_s: float | None = None
    model: str | None = None
    workload: str | None = None
    """The workload of its session, if a log has several."""


def reader(
    made: Callable[..., Iterator[Session]], **fixed: Any
) -> Callable[[Callable[..., Iterator[Any]]], Callable[..., Iterator[Session]]]:
    """Make an importer's `sessions` of a function that yields calls.

    *made* (`sessions` or `conversations`) groups the calls.
    """

    def decorated(read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Session]]:
        @wraps(read)
        def importing(intake: Intake, **options: Any) -> Iterator[Session]:  # those of the reader
            return made(intake, read(intake, **options), **fixed)

        return importing

    return decorated


def sessions(
    intake: Intake,
    found: Iterable[SizedCall],
    *,
    workload: str,
    holds: Holds = "context",
    grid: Grid = "keep",
) -> Iterator[Session]:
    """Yield a session for each name; ids are those of the import's blocks."""
    main: str | None = None
    for group in groups(by_session(found, SizedCall), grid):
        main = main or group.calls[0].model
        for call in group.calls:
            call.model = None if call.model == main else call.model
        yield session(intake, group, workload=group.calls[0].workload or workload, holds=holds)


def leading(system: int, prompt: int) -> list[ContextPiece]:
    """Return the system prompt of this many tokens that all prompts share."""
    shared = min(system, prompt)
    if not shared:
        return []
    return [ContextPiece(role="system", tokens=shared, key="system")]


def session(
    intake: Intake, group: CallGroup[SizedCall], *, workload: str, holds: Holds = "context"
) -> Session:
    """Make a session of sized calls; each one after the first is a user turn."""
    block = intake.source.block
    trail = intake.source.trail()
    turns: list[Turn] = []
    last: SizedCall | None = None
    sent: tuple[Segment, ...] = ()
    for call, context in zip(group.calls, _contexts(group, block, holds), strict=True):
        keep = common_start(sent, context)
        is_numbered = call.ids and len(call.ids) == -(-call.prompt // block)
        if holds == "context" and is_numbered:
            same = 0 if last is None else _common_blocks(last, call, block)
            trail.blocks(call.ids, call.prompt, same=same)
        else:
            trail.call(context[keep:], keep=keep)
        turns.append(
            Turn(
                add=context[keep:],
                output=call.output,
                wait=None if last is None else "user",
                wait_s=0.0 if last is None else _pause(intake, last, call),
                keep=None if keep == len(sent) else keep,
                model=call.model,
                recorded=_recording(group, call, is_first=last is None),
            )
        )
        last = call
        sent = context
    return Session(session=group.name, workload=workload, turns=tuple(turns), start_s=group.start_s)


def _contexts(
    group: CallGroup[SizedCall], block: int, holds: Holds
) -> Iterator[tuple[Segment, ...]]:
    """Yield the context of each call."""
    cuts: set[int] = set()
    if holds == "context":
        cuts = {_common_blocks(one, other, block) for one, other in pairwise(group.calls)}
    sent: tuple[Segment, ...] = ()
    answer: tuple[Segment, ...] = ()
    for number, call in enumerate(group.calls):
        key = f"{group.name}.{number}"
        own = _own(call, key, block, cuts)
        held = (*sent, *answer)
        spare = call.prompt - total_tokens(held)
        if holds == "news":
            sent = (*held, *own)
        elif holds == "unknown" and number and spare > 0:
            sent = (*held, Segment(role="user", tokens=spare, key=key))
        else:
            sent = own
        yield sent
        said = Segment(role="assistant", tokens=call.output, key=f"{group.name}.a{number}")
        answer = (said,) if call.output else ()


def _own(call: SizedCall, key: str, block: int, cuts: Collection[int]) -> tuple[Segment, ...]:
    """Return what the log says of a call's context; the rest is the user's."""
    named = tuple(piece.segment() for piece in call.pieces)
    if not named:
        ids = call.ids[: -(-call.prompt // block)]
        tokens = min(call.prompt, len(ids) * block)
        named = segments(ids, tokens, block=block, cuts=cuts)
    rest = call.prompt - total_tokens(named)
    if named and not rest:
        return named
    return (*named, Segment(role="user", tokens=rest, key=key))


def _common_blocks(one: SizedCall, other: SizedCall, block: int) -> int:
    """Count the full blocks that two prompts have in common."""
    ids = one.ids[: one.prompt // block]
    others = other.ids[: other.prompt // block]
    return common_ids(ids, others)


def _pause(intake: Intake, before: SizedCall, now: SizedCall) -> float:
    if now.delay_s is not None:
        return round(now.delay_s, 6)
    if before.api_s is None:
        intake.notes.estimate(
            "waits include the service time of the previous answer, which is not in the source"
        )
    return round(max(0.0, now.at_s - before.at_s - (before.api_s or 0.0)), 6)


def _recording(group: CallGroup[SizedCall], call: SizedCall, *, is_first: bool) -> Recorded | None:
    """Return when a call was sent and how long it took, beyond what its session says."""
    at_s = round(call.at_s - group.origin_s, 6)
    is_start = is_first and at_s == group.start_s
    return recording(Recorded(start_s=None if is_start else at_s, api_s=call.api_s))


class SpokenCall(msgspec.Struct, kw_only=True):
    """One call of a log that has messages, and its answer."""

    session: str
    at_s: float
    place: str
    timing: CallTiming
    usage: CallUsage
    context: list[ContextPiece]
    """Pieces of the context; empty if not logged.

    Then it is assumed to contain the previous context and answer if it is long enough.
    """
    answer: list[ContextPiece] = []
    model: str | None = None
    is_new: bool = False
    """Whether the context holds only what is new since the previous answer."""
    lead: str | None = None
    """Identity of a system prompt and tools that the log does not show; equal ones are shared."""
    asked: Wait | None = None
    """What the call waited for, if roles do not show it."""


class Continuations:
    """Find the conversation that a request continues, if the log does not name it.

    It is the conversation with whose latest messages the request starts.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, str] = {}  # by all messages of a conversation's latest request
        self._count = 0

    def session(self, context: Sequence[ContextPiece]) -> str:
        """Return the conversation's name, a new one if no earlier request is a prefix."""
        found: str | None = None
        chain = 0
        for number, piece in enumerate(context, start=1):
            own = identity(f"{piece.role} {piece.key}")
            chain = (chain * _SPREAD + own) & _WORD
            if number < len(context):  # the same request again is another conversation
                found = self._sessions.pop(chain, None) or found
        if found is None:
            found = f"#{self._count}"
            self._count += 1
        self._sessions[chain] = found
        return found


def _with_keys(pieces: Sequence[ContextPiece], name: str) -> list[ContextPiece]:
    """Name the pieces whose contents are not in the log by their places."""
    return [
        piece if piece.key else msgspec.structs.replace(piece, key=f"{name}.{number}")
        for number, piece in enumerate(pieces)
    ]


def conversations(
    intake: Intake, found: Iterable[SpokenCall], *, workload: str, every_s: float = 0.0
) -> Iterator[Session]:
    """Yield a session for each name, `every_s` seconds apart if the log has no times."""
    for number, group in enumerate(groups(by_session(found, SpokenCall))):
        first = group.calls[0]
        is_timed = first.timing.sent_s is not None
        dialogue = Dialogue(
            intake=intake,
            origin_s=group.origin_s if is_timed else -number * every_s,
            began_s=None if is_timed else number * every_s,
            lead=None if first.lead is None else intake.identity.of("system", first.lead),
        )
        main = next((call.model for call in group.calls if call.model is not None), None)
        play(dialogue, entries(group.calls, group.name), main=main)
        yield dialogue.session(group.name, workload=workload)


def entries(calls: Iterable[SpokenCall], name: str) -> Iterator[TranscriptEntry]:
    """Yield a conversation's calls, each after an entry of what it sends, if that is known."""
    tip: str | None = None
    for number, call in enumerate(calls):
        own = f"{name}.{number}"
        if call.context:
            parent = tip if call.is_new else None
            tip = f"{own}<"
            pieces = tuple(_with_keys(call.context, own))
            yield TranscriptEntry(id=tip, parent=parent, place=call.place, at_s=None, pieces=pieces)
        answer = tuple(call.answer)
        if not answer and not any(piece.key for piece in call.context):
            length = call.usage.output or 1
            answer = (ContextPiece(role="assistant", tokens=length, key=f"{name}.a{number}"),)
        yield TranscriptEntry(
            id=own,
            parent=tip,
            place=call.place,
            at_s=call.timing.done_s,
            pieces=answer,
            timing=call.timing,
            usage=call.usage,
            model=call.model,
            grows=None if call.context or call.is_new else own,
            asked=call.asked,
        )
        tip = own
