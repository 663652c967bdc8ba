"""Mooncake traces (kvcache-ai/Mooncake) and AIPerf's extensions
of them: one request a line, with the ids of its blocks.

{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}. With AIPerf's
"session_id" the lines of a session are its turns, "delay" (ms) is the wait before one, and
"text_input", "messages" or "payload" may replace lengths and ids. Block ids are kept, so
sharing between requests is exact; roles are not in the source, so all text is the user's.

history=delta: a later line of a session holds only what is new, as AIPerf reads it;
full: the whole context (a line's own "context_mode" or "message_mode" wins).
grid=spread: starts with the same timestamp are spread over the time to the next one; the
public conversation trace has timestamps on a grid of 3 s, whose bursts are an artefact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    ContextPiece,
    Dialogue,
    Grid,
    Head,
    Intake,
    SpokenCall,
    by_session,
    chat,
    requests,
    transcripts,
    with_starts,
)
from agentload.model.trace import Session
from agentload.plugins import Positive

FILES: Final = ("*.jsonl",)
LICENCE: Final = "the public Mooncake traces are Apache-2.0 (kvcache-ai/Mooncake)"
ORIGIN: Final = "origin_s"
"""Field of a trace's first session: the source time at which the trace starts."""
History = Literal["delta", "full"]


class _Line(msgspec.Struct):
    timestamp: float | None = None
    delay: float | None = None
    input_length: int | None = None
    output_length: int | None = None
    hash_ids: list[int] | None = None
    session_id: str | int | None = None
    text_input: str | None = None
    messages: list[Any] | None = None
    tools: list[Any] | None = None
    payload: dict[str, Any] | None = None
    context_mode: str | None = None
    message_mode: str | None = None


class _Request(requests.SizedCall, kw_only=True):
    history: History


def sniff(head: Head) -> float:
    """Look for lengths or a text, and a time, a session or blocks."""
    if head.has("chat_id") or isinstance(head.record.get("hash_ids"), dict):
        return 0.0
    if head.has("input_length", "output_length") and any(
        map(head.has, ("timestamp", "session_id", "hash_ids"))
    ):
        return 0.9
    return (
        0.8
        if head.has("output_length") and any(map(head.has, ("text_input", "messages", "payload")))
        else 0.0
    )


def sessions(
    intake: Intake, *, block: Positive = 512, history: History = "delta", grid: Grid = "keep"
) -> Iterator[Session]:
    """Yield a session for each `session_id`, and for each line without one."""
    found = by_session(_requests(intake, block, history), _Request)
    origin_s: float | None = None
    for number, (group, start_s) in enumerate(with_starts(found, grid)):
        origin_s = start_s if origin_s is None else origin_s
        if any(request.pieces is not None for request in group):
            session = _spoken(intake, group, f"s{number}", origin_s)
        else:
            session = requests.session(
                intake,
                group,
                name=f"s{number}",
                workload="mooncake",
                start_s=round(start_s - origin_s, 6),
                origin_s=origin_s,
                block=block,
                holds="news" if len(group) > 1 and group[0].history == "delta" else "context",
            )
        # A trace starts at 0; its source's start is kept in the
        # first session, so that an export restores the times.
        yield (
            session
            if number or not origin_s
            else replace(session, extra=((ORIGIN, str(origin_s)),))
        )


def _requests(intake: Intake, block: int, history: History) -> Iterator[_Request]:
    last: dict[str, float] = {}
    for number, (place, line) in enumerate(intake.records(_Line)):
        session = str(number) if line.session_id is None else f"+{line.session_id}"
        request = _Request(
            session=session,
            at_s=(line.timestamp or 0.0) / 1000,
            place=place,
            prompt=line.input_length or 0,
            output=line.output_length if line.output_length is not None else 1,
            ids=None
            if line.hash_ids is None
            else [intake.identity.block(found) for found in line.hash_ids],
            delay_s=None if line.delay is None else line.delay / 1000,
            history=_history(line, history),
        )
        if line.timestamp is None and line.session_id is not None:
            request.at_s = last.get(session, 0.0) + (request.delay_s or 0.0)
        if line.input_length is None:
            request.pieces = list(_pieces(intake, line))
        if not _is_whole(intake, request, line, block):
            continue
        if line.session_id is not None:
            last[session] = request.at_s
        yield request


def _history(line: _Line, history: History) -> History:
    if line.context_mode is not None:
        return "full" if line.context_mode.endswith("with_responses") else "delta"
    if line.messages is not None or line.payload is not None:
        return "delta" if line.message_mode == "delta" else "full"
    return history


def _is_whole(intake: Intake, request: _Request, line: _Line, block: int) -> bool:
    if not request.prompt and not request.pieces:
        intake.notes.skip(request.place, "neither input_length nor text_input, messages or payload")
        return False
    if min(request.prompt, request.output, request.at_s, request.delay_s or 0.0) < 0:
        intake.notes.skip(request.place, "a negative length or time")
        return False
    if request.ids is not None and request.pieces is None:
        if len(request.ids) > -(-request.prompt // block):
            intake.notes.meet(
                request.place, f"more block ids than fit a prompt of this length (block={block})"
            )
        elif request.prompt - len(request.ids) * block >= block:
            intake.notes.meet(
                request.place, f"block ids cover only part of the prompt (block={block})"
            )
    if line.output_length is None:
        intake.notes.estimate("output_length is missing: 1 token assumed")
    return True


def _pieces(intake: Intake, line: _Line) -> Iterator[ContextPiece]:
    payload = line.payload or {}
    tools = chat.schemas(intake, line.tools or payload.get("tools") or ())
    found = line.messages or payload.get("messages")
    text = line.text_input if line.text_input is not None else payload.get("prompt")
    said = chat.messages(
        intake, found if isinstance(found, list) else [{"role": "user", "content": text}]
    )
    yield from chat.behind_system(tools, said)


def _spoken(intake: Intake, group: Sequence[_Request], name: str, origin_s: float) -> Session:
    """Make a session of requests with text in the source."""
    logged: list[SpokenCall] = []
    at_s = 0.0
    for number, request in enumerate(group):
        is_delayed = number > 0 and request.delay_s is not None
        at_s = at_s + (request.delay_s or 0.0) if is_delayed else request.at_s
        unwritten = ContextPiece(role="user", tokens=request.prompt, key=f"{name}.{number}")
        answer = ContextPiece(role="assistant", tokens=request.output, key=f"{name}.a{number}")
        logged.append(
            SpokenCall(
                session=name,
                at_s=at_s,
                place=request.place,
                timing=CallTiming(sent_s=at_s),
                usage=CallUsage(output=request.output),
                context=request.pieces or [unwritten],
                answer=[answer],
                is_new=number > 0 and request.history == "delta",
            )
        )
    dialogue = Dialogue(intake=intake, origin_s=origin_s)
    transcripts.play(dialogue, requests.entries(logged, name))
    return dialogue.session(name, workload="mooncake")
