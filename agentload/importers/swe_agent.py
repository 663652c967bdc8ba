"""SWE-agent's trajectories (SWE-agent/SWE-agent): *.traj files with "trajectory" and "history".

Every answer in the history is a call, except in a demonstration, which is plain text; if a step
has the messages that were sent ("query" or "messages"), they are its context. A step's
execution_time is the wait for its tool. Lengths are estimated at four bytes a token and scaled to
the counts of info.model_stats, if any. There are no times: sessions start at 0, or every_s apart.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    ContextPiece,
    Head,
    Intake,
    JsonRecord,
    SpokenCall,
    chat,
    requests,
)
from agentload.plugins import Seconds

FILES: Final = ("*.traj",)
LICENCE: Final = "the public SWE-agent trajectories are MIT (SWE-agent/SWE-agent)"


class _Step(msgspec.Struct):
    execution_time: float | None = None
    messages: list[JsonRecord] | None = None
    query: list[JsonRecord] | None = None
    response: str | None = None


class _Stats(msgspec.Struct):
    tokens_sent: int = 0
    tokens_received: int = 0
    api_calls: int = 0


class _Info(msgspec.Struct):
    model_stats: _Stats = msgspec.field(default_factory=_Stats)


class _Trajectory(msgspec.Struct):
    history: list[JsonRecord] = []
    trajectory: list[_Step] = []
    info: _Info = msgspec.field(default_factory=_Info)


class _Answer(NamedTuple):
    """An answer of a trajectory."""

    context: list[ContextPiece]
    answer: list[ContextPiece]
    waited_s: float
    """How long the tool before it took."""


def sniff(head: Head) -> float:
    """Look for the file extension, or for a history."""
    if head.path.name.removesuffix(".zst").removesuffix(".gz").endswith(".traj"):
        return 0.9
    return 0.8 if head.has("trajectory", "history") else 0.0


@requests.reader(requests.conversations, workload="swe_agent")
def sessions(intake: Intake, *, every_s: Seconds = 0.0) -> Iterator[SpokenCall]:
    """Yield a session for each file."""
    number = 0
    for place, found in intake.records(_Trajectory):
        calls = list(_calls(intake, found))
        if not calls:
            intake.notes.drop("a trajectory without an answer")
            continue
        intake.notes.estimate("times of a trajectory: not in the source, but for its tools'")
        sent, received = _ratios(found.info.model_stats, calls)
        at_s = number * every_s
        for call in calls:
            at_s += call.waited_s
            yield SpokenCall(
                session=str(number),
                at_s=at_s,
                place=place,
                timing=CallTiming(sent_s=at_s),
                usage=CallUsage(output=max(1, round(chat.total(call.answer) * received))),
                context=_scale(call.context, sent),
                answer=_scale(call.answer, sent),
            )
        number += 1


def _calls(intake: Intake, found: _Trajectory) -> Iterator[_Answer]:
    """Yield the answers of a model; those of a demonstration are context."""
    steps = found.trajectory
    context: list[ContextPiece] = []
    number = 0
    for message in found.history:
        pieces = list(chat.messages(intake, [message]))
        if chat.role_of(message.get("role")) == "assistant" and not message.get("is_demo"):
            step = steps[number] if number < len(steps) else _Step()
            told = step.query or step.messages
            sent = list(chat.messages(intake, told)) if told else list(context)
            waited_s = steps[number - 1].execution_time if 0 < number <= len(steps) else None
            yield _Answer(sent, pieces, waited_s or 0.0)
            number += 1
        context += pieces


def _ratios(stats: _Stats, calls: Sequence[_Answer]) -> tuple[float, float]:
    """Return the factors that scale the lengths of prompts and answers to the counted totals."""
    sent = sum(chat.total(call.context) for call in calls)
    received = sum(chat.total(call.answer) for call in calls)
    if stats.api_calls != len(calls):
        return 1.0, 1.0
    return _ratio(stats.tokens_sent, sent), _ratio(stats.tokens_received, received)


def _ratio(counted: int, estimated: int) -> float:
    if not counted or not estimated:
        return 1.0
    return counted / estimated


def _scale(pieces: Sequence[ContextPiece], ratio: float) -> list[ContextPiece]:
    """Scale the lengths of pieces; images keep theirs."""
    if ratio == 1.0:
        return list(pieces)
    return [
        piece
        if piece.pixels
        else msgspec.structs.replace(piece, tokens=max(1, round(piece.tokens * ratio)))
        for piece in pieces
    ]
