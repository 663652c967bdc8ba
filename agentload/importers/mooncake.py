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

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from agentload.importers.parts import (
    CallGroup,
    CallTiming,
    CallUsage,
    ContextPiece,
    Dialogue,
    Grid,
    Head,
    Intake,
    JsonRecord,
    SpokenCall,
    by_session,
    chat,
    groups,
    requests,
    transcripts,
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
    payload: JsonRecord | None = None
    context_mode: str | None = None
    message_mode: str | None = None


class _Call(requests.SizedCall, kw_only=True):
    history: History


def sniff(head: Head) -> float:
    """Look for lengths or a text, and a time, a session or blocks."""
    if head.has("chat_id") or isinstance(head.record.get("hash_ids"), dict):
        return 0.0
    if not head.has("output_length"):
        return 0.0
    if head.has("input_length") and head.has_any("timestamp", "session_id", "hash_ids"):
        return 0.9
    return 0.8 if head.has_any("text_input", "messages", "payload") else 0.0


def sessions(
    intake: Intake, *, block: Positive = 512, history: History = "delta", grid: Grid = "keep"
) -> Iterator[Session]:
    """Yield a session for each `session_id`, and for each line without one."""
    found = by_session(_calls(intake, block, history), _Call)
    for number, group in enumerate(groups(found, grid)):
        if any(call.pieces for call in group.calls):
            session = _session_of_texts(intake, group)
        else:
            is_delta = len(group.calls) > 1 and group.calls[0].history == "delta"
            session = requests.session(
                intake, group, workload="mooncake", holds="news" if is_delta else "context"
            )
        # A trace starts at 0; its source's start is kept in the
        # first session, so that an export restores the times.
        if group.origin_s and not number:
            session = replace(session, extra=((ORIGIN, str(group.origin_s)),))
        yield session


def _calls(intake: Intake, block: int, history: History) -> Iterator[_Call]:
    last_s: dict[str, float] = {}
    for number, (place, line) in enumerate(intake.records(_Line)):
        session = requests.session_name(line.session_id, str(number))
        call = _Call(
            session=session,
            at_s=(line.timestamp or 0.0) / 1000,
            place=place,
            prompt=line.input_length or 0,
            output=1 if line.output_length is None else line.output_length,
            ids=[intake.identity.block(found) for found in line.hash_ids or ()],
            delay_s=None if line.delay is None else line.delay / 1000,
            history=_history(line, history),
        )
        if line.timestamp is None and line.session_id is not None:
            call.at_s = last_s.get(session, 0.0) + (call.delay_s or 0.0)
        if line.input_length is None:
            call.pieces = list(_pieces(intake, line))
        if not _is_whole(intake, call):
            continue
        if line.session_id is not None:
            last_s[session] = call.at_s
        _check_ids(intake, call, line, block)
        yield call


def _history(line: _Line, history: History) -> History:
    if line.context_mode is not None:
        return "full" if line.context_mode.endswith("with_responses") else "delta"
    if line.messages is not None or line.payload is not None:
        return "delta" if line.message_mode == "delta" else "full"
    return history


def _is_whole(intake: Intake, call: _Call) -> bool:
    if not call.prompt and not call.pieces:
        intake.notes.skip(call.place, "neither input_length nor text_input, messages or payload")
        return False
    if min(call.prompt, call.output, call.at_s, call.delay_s or 0.0) < 0:
        intake.notes.skip(call.place, "a negative length or time")
        return False
    return True


def _check_ids(intake: Intake, call: _Call, line: _Line, block: int) -> None:
    """Note what a line lacks, and whether its block ids fit its length."""
    if line.hash_ids is not None and line.input_length is not None:
        spare = call.prompt - len(call.ids) * block
        if spare <= -block:
            what = "more block ids than fit a prompt of this length"
            intake.notes.meet(call.place, f"{what} (block={block})")
        elif spare >= block:
            what = "block ids cover only part of the prompt"
            intake.notes.meet(call.place, f"{what} (block={block})")
    if line.output_length is None:
        intake.notes.estimate("output_length is missing: 1 token assumed")


def _pieces(intake: Intake, line: _Line) -> Iterator[ContextPiece]:
    payload = line.payload or {}
    tools = chat.schemas(intake, line.tools or payload.get("tools") or ())
    found = line.messages or payload.get("messages")
    if not isinstance(found, list):
        text = payload.get("prompt") if line.text_input is None else line.text_input
        found = [{"role": "user", "content": text}]
    yield from chat.behind_system(tools, chat.messages(intake, found))


def _session_of_texts(intake: Intake, group: CallGroup[_Call]) -> Session:
    """Make a session of calls with text in the source."""
    name = group.name
    spoken: list[SpokenCall] = []
    at_s = 0.0
    for number, call in enumerate(group.calls):
        is_delayed = number > 0 and call.delay_s is not None
        at_s = at_s + (call.delay_s or 0.0) if is_delayed else call.at_s
        unwritten = ContextPiece(role="user", tokens=call.prompt, key=f"{name}.{number}")
        answer = ContextPiece(role="assistant", tokens=call.output, key=f"{name}.a{number}")
        spoken.append(
            SpokenCall(
                session=name,
                at_s=at_s,
                place=call.place,
                timing=CallTiming(sent_s=at_s),
                usage=CallUsage(output=call.output),
                context=call.pieces or [unwritten],
                answer=[answer],
                is_new=number > 0 and call.history == "delta",
            )
        )
    dialogue = Dialogue(intake=intake, origin_s=group.origin_s)
    transcripts.play(dialogue, requests.entries(spoken, name))
    return dialogue.session(name, workload="mooncake")
