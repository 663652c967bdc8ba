"""Requests that a log knows by length, and perhaps by the ids of their blocks: as the turns of a session."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from agentload.importers.parts.blocks import kept, segments, shared
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.pieces import Piece
from agentload.importers.parts.reuse import Trail
from agentload.model.trace import Recorded, Segment, Session, Turn

Holds = Literal["context", "news", "unknown"]
"""What a request's length and ids describe: all of its context; what is new in it; all of it, but not what stays the same."""


class Request(msgspec.Struct, kw_only=True):
    """One request of a log."""

    session: str
    at_s: float
    place: str
    prompt: int
    output: int
    ids: list[int] | None = None
    pieces: list[Piece] | None = None
    """What its context begins with, where that is known by name; the rest has no identity."""
    delay_s: float | None = None
    """Wait after the answer before, where the log says so."""
    api_s: float | None = None
    model: str | None = None


def session(
    intake: Intake,
    requests: Sequence[Request],
    *,
    name: str,
    workload: str,
    start_s: float,
    origin_s: float,
    block: int,
    holds: Holds = "context",
) -> Session:
    """Make a session of requests; the first starts it, each further one is a turn of the user's."""
    trail = intake.source.trail()
    turns: list[Turn] = []
    before: tuple[Segment, ...] = ()
    for number, (request, context) in enumerate(zip(requests, _contexts(requests, name, block, holds), strict=True)):
        keep = kept(before, context)
        _measure(trail, requests, number, context, keep, block=block, holds=holds)
        at_s = round(request.at_s - origin_s, 6)
        recorded = Recorded(start_s=at_s if number or at_s != start_s else None, api_s=request.api_s)
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


def _contexts(requests: Sequence[Request], name: str, block: int, holds: Holds) -> Iterator[tuple[Segment, ...]]:
    cuts = {shared(_full(one, block), _full(two, block)) for one, two in pairwise(requests)} if holds == "context" else set()
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


def _own(request: Request, key: str, block: int, cuts: set[int]) -> tuple[Segment, ...]:
    if request.pieces is not None:
        known = tuple(piece.segment() for piece in request.pieces)
    else:
        ids = (request.ids or [])[: -(-request.prompt // block)]
        known = segments(ids, min(request.prompt, len(ids) * block), block=block, cuts=cuts)
    rest = request.prompt - sum(segment.tokens for segment in known)
    return (*known, Segment(role="user", tokens=rest, key=key)) if rest or not known else known


def _answer(requests: Sequence[Request], number: int, name: str) -> tuple[Segment, ...]:
    if not number or not requests[number - 1].output:
        return ()
    return (Segment(role="assistant", tokens=requests[number - 1].output, key=f"{name}.a{number - 1}"),)


def _grown(before: tuple[Segment, ...], requests: Sequence[Request], number: int, name: str) -> tuple[Segment, ...]:
    """Let a context grow where its length says that it may hold the one before and its answer; else begin anew."""
    held = (*before, *_answer(requests, number, name))
    spare = requests[number].prompt - sum(segment.tokens for segment in held)
    if number and spare > 0:
        return (*held, Segment(role="user", tokens=spare, key=f"{name}.{number}"))
    return _own(requests[number], f"{name}.{number}", 1, set())


def _full(request: Request, block: int) -> list[int]:
    return (request.ids or [])[: request.prompt // block]


def _measure(
    trail: Trail, requests: Sequence[Request], number: int, context: tuple[Segment, ...], keep: int, *, block: int, holds: Holds
) -> None:
    ids, prompt = requests[number].ids or [], requests[number].prompt
    if holds == "context" and ids and len(ids) == -(-prompt // block):
        same = shared(_full(requests[number - 1], block), _full(requests[number], block)) if number else 0
        trail.blocks(ids, prompt, same=same)
    else:
        trail.call(context[keep:], keep=keep)


def _pause(intake: Intake, before: Request, now: Request) -> float:
    if now.delay_s is not None:
        return round(now.delay_s, 6)
    if before.api_s is None:
        intake.notes.estimate("waits hold the time of the answer before: the source does not say how long that took")
    return round(max(0.0, now.at_s - before.at_s - (before.api_s or 0.0)), 6)
