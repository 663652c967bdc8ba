"""Turn logged requests, known by length, block ids or messages, into the turns of sessions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Literal

import msgspec

from agentload.importers.parts.blocks import common_ids, common_start, segments
from agentload.importers.parts.chat import ContextPiece
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.order import Grid, by_session, with_starts
from agentload.importers.parts.reuse import Trail, identity
from agentload.importers.parts.transcripts import TranscriptEntry, play
from agentload.model.trace import Recorded, Segment, Session, Turn, Wait

Holds = Literal["context", "news", "unknown"]
"""What a request's length and ids describe.

`context`: its whole context; `news`: only what is new; `unknown`: the whole context
without a constant prefix.
"""
_WORD = (1 << 64) - 1


class SizedCall(msgspec.Struct, kw_only=True):
    """One request of a log."""

    session: str
    at_s: float
    place: str
    prompt: int
    output: int
    ids: list[int] | None = None
    pieces: list[ContextPiece] | None = None
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
    """Make an importer's `sessions` of a function that yields requests.

    *made* (`sessions` or `conversations`) groups the requests.
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
    groups = by_session(found, SizedCall)
    origin_s: float | None = None
    main: str | None = None
    for number, (group, start_s) in enumerate(with_starts(groups, grid)):
        origin_s = start_s if origin_s is None else origin_s
        main = main or group[0].model
        for request in group:
            request.model = None if request.model == main else request.model
        yield session(
            intake,
            group,
            name=f"s{number}",
            workload=group[0].workload or workload,
            start_s=round(start_s - origin_s, 6),
            origin_s=origin_s,
            block=intake.source.block,
            holds=holds,
        )


def leading(system: int, prompt: int) -> list[ContextPiece] | None:
    """Return the system prompt of this many tokens that all prompts share."""
    shared = min(system, prompt)
    return [ContextPiece(role="system", tokens=shared, key="system")] if shared else None


def session(
    intake: Intake,
    requests: Sequence[SizedCall],
    *,
    name: str,
    workload: str,
    start_s: float,
    origin_s: float,
    block: int,
    holds: Holds = "context",
) -> Session:
    """Make a session of requests; each one after the first is a user turn."""
    trail = intake.source.trail()
    turns: list[Turn] = []
    before: tuple[Segment, ...] = ()
    for number, (request, context) in enumerate(
        zip(requests, _contexts(requests, name, block, holds), strict=True)
    ):
        keep = common_start(before, context)
        _measure(trail, requests, number, context, keep, block=block, holds=holds)
        at_s = round(request.at_s - origin_s, 6)
        recorded = Recorded(
            start_s=at_s if number or at_s != start_s else None, api_s=request.api_s
        )
        turns.append(
            Turn(
                add=context[keep:],
                output=request.output,
                wait="user" if number else None,
                wait_s=_pause(intake, requests[number - 1], request) if number else 0.0,
                keep=None if keep == len(before) else keep,
                model=request.model,
                recorded=None if recorded == Recorded() else recorded,
            )
        )
        before = context
    return Session(session=name, workload=workload, turns=tuple(turns), start_s=start_s)


def _contexts(
    requests: Sequence[SizedCall], name: str, block: int, holds: Holds
) -> Iterator[tuple[Segment, ...]]:
    cuts = (
        {common_ids(_full(one, block), _full(two, block)) for one, two in pairwise(requests)}
        if holds == "context"
        else set()
    )
    before: tuple[Segment, ...] = ()
    for number, request in enumerate(requests):
        own = _own(request, f"{name}.{number}", block, cuts)
        match holds:
            case "context":
                before = own
            case "news":
                before += (*_answer(requests, number, name), *own)
            case "unknown":
                before = _grown(before, requests, number, name)
        yield before


def _own(request: SizedCall, key: str, block: int, cuts: set[int]) -> tuple[Segment, ...]:
    if request.pieces is not None:
        known = tuple(piece.segment() for piece in request.pieces)
    else:
        ids = (request.ids or [])[: -(-request.prompt // block)]
        known = segments(ids, min(request.prompt, len(ids) * block), block=block, cuts=cuts)
    rest = request.prompt - sum(segment.tokens for segment in known)
    return (*known, Segment(role="user", tokens=rest, key=key)) if rest or not known else known


def _answer(requests: Sequence[SizedCall], number: int, name: str) -> tuple[Segment, ...]:
    if not number or not requests[number - 1].output:
        return ()
    return (
        Segment(role="assistant", tokens=requests[number - 1].output, key=f"{name}.a{number - 1}"),
    )


def _grown(
    before: tuple[Segment, ...], requests: Sequence[SizedCall], number: int, name: str
) -> tuple[Segment, ...]:
    """Extend the previous context and answer if the prompt is longer; else start a new one."""
    held = (*before, *_answer(requests, number, name))
    spare = requests[number].prompt - sum(segment.tokens for segment in held)
    if number and spare > 0:
        return (*held, Segment(role="user", tokens=spare, key=f"{name}.{number}"))
    return _own(requests[number], f"{name}.{number}", 1, set())


def _full(request: SizedCall, block: int) -> list[int]:
    return (request.ids or [])[: request.prompt // block]


def _measure(
    trail: Trail,
    requests: Sequence[SizedCall],
    number: int,
    context: tuple[Segment, ...],
    keep: int,
    *,
    block: int,
    holds: Holds,
) -> None:
    ids, prompt = requests[number].ids or [], requests[number].prompt
    if holds == "context" and ids and len(ids) == -(-prompt // block):
        same = (
            common_ids(_full(requests[number - 1], block), _full(requests[number], block))
            if number
            else 0
        )
        trail.blocks(ids, prompt, same=same)
    else:
        trail.call(context[keep:], keep=keep)


def _pause(intake: Intake, before: SizedCall, now: SizedCall) -> float:
    if now.delay_s is not None:
        return round(now.delay_s, 6)
    if before.api_s is None:
        intake.notes.estimate(
            "waits include the service time of the previous answer, which is not in the source"
        )
    return round(max(0.0, now.at_s - before.at_s - (before.api_s or 0.0)), 6)


class SpokenCall(msgspec.Struct, kw_only=True):
    """One request and its answer."""

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
            chain = (chain * 0x9E3779B97F4A7C15 + identity(f"{piece.role} {piece.key}")) & _WORD
            if number < len(context):  # the same request again is another conversation
                found = self._sessions.pop(chain, None) or found
        if found is None:
            found = f"#{self._count}"
            self._count += 1
        self._sessions[chain] = found
        return found


def _named(pieces: Sequence[ContextPiece], name: str) -> list[ContextPiece]:
    """Name the pieces whose contents are not in the log by their places."""
    return [
        piece if piece.key else msgspec.structs.replace(piece, key=f"{name}.{number}")
        for number, piece in enumerate(pieces)
    ]


def conversations(
    intake: Intake, found: Iterable[SpokenCall], *, workload: str, every_s: float = 0.0
) -> Iterator[Session]:
    """Yield a session for each name, `every_s` seconds apart if the log has no times."""
    origin_s: float | None = None
    for number, group in enumerate(by_session(found, SpokenCall)):
        origin_s = group[0].at_s if origin_s is None else origin_s
        is_timed = group[0].timing.sent_s is not None
        dialogue = Dialogue(
            intake=intake,
            origin_s=origin_s if is_timed else -number * every_s,
            began_s=None if is_timed else number * every_s,
            lead=None if group[0].lead is None else intake.identity.of("system", group[0].lead),
        )
        main = next((logged.model for logged in group if logged.model is not None), None)
        play(dialogue, entries(group, f"s{number}"), main=main)
        yield dialogue.session(f"s{number}", workload=workload)


def entries(group: Iterable[SpokenCall], name: str) -> Iterator[TranscriptEntry]:
    """Yield a conversation's calls, each after an entry of what it sends, if that is known."""
    tip: str | None = None
    for position, logged in enumerate(group):
        own, place = f"{name}.{position}", logged.place
        if logged.context:
            pieces = tuple(_named(logged.context, own))
            yield TranscriptEntry(
                id=f"{own}<",
                parent=tip if logged.is_new else None,
                place=place,
                at_s=None,
                pieces=pieces,
            )
            tip = f"{own}<"
        answer = tuple(logged.answer)
        if not answer and not any(piece.key for piece in logged.context):
            answer = (
                ContextPiece(
                    role="assistant", tokens=logged.usage.output or 1, key=f"{name}.a{position}"
                ),
            )
        yield TranscriptEntry(
            id=own,
            parent=tip,
            place=place,
            at_s=logged.timing.done_s,
            pieces=answer,
            timing=logged.timing,
            usage=logged.usage,
            model=logged.model,
            grows=None if logged.context or logged.is_new else own,
            asked=logged.asked,
        )
        tip = own
