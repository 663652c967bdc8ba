"""OpenClaw's cache trace (OPENCLAW_CACHE_TRACE=1): logs/cache-trace.jsonl,
the exact requests with system prompt and messages.

{"ts", "stage": "stream:context", "sessionId", "system", "messages", "modelId"}. Every
stream:context is a call; its answer and usage are the first message added by a later event of the
session. Tool schemas are not in the file: prompts are scaled to the counted tokens. Nor are the
ends of calls, so waits include service times; the sessions' own files have more (format openclaw).
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    Head,
    Intake,
    SpokenCall,
    agents_usage,
    chat,
    fields,
    requests,
)

FILES: Final = ("cache-trace*.jsonl",)


class _Event(msgspec.Struct):
    stage: str
    ts: str | None = None
    session: str | None = msgspec.field(name="sessionId", default=None)
    model: str | None = msgspec.field(name="modelId", default=None)
    system: Any = None
    messages: list[Any] | None = None


class _Open(msgspec.Struct):
    """A call without its answer yet, and the number of messages it sent."""

    call: SpokenCall
    sent: int


def sniff(head: Head) -> float:
    """Look for a stage."""
    if head.has("stage", "ts", "seq") and ("sessionId" in head.record or "runId" in head.record):
        return 1.0
    return 0.0


@requests.reader(requests.conversations, workload="openclaw")
def sessions(intake: Intake) -> Iterator[SpokenCall]:
    """Yield a session for each `sessionId`."""
    waiting: dict[str, _Open] = {}
    for place, event in intake.records(_Event):
        name = event.session or place
        messages = event.messages or []
        before = waiting.get(name)
        if before is not None and len(messages) > before.sent:
            yield _with_answer(intake, before.call, messages[before.sent])
            del waiting[name]
        if event.stage != "stream:context":
            continue
        if name in waiting:
            yield waiting.pop(name).call
        at_s = fields.seconds(event.ts)
        if at_s is None:
            intake.notes.skip(place, "no time")
            continue
        context = [
            *chat.pieces(intake, "system", {"content": event.system}),
            *chat.messages(intake, messages),
        ]
        if not context:
            intake.notes.drop(
                "a call without messages in the file (OPENCLAW_CACHE_TRACE_MESSAGES=0)"
            )
            continue
        call = SpokenCall(
            session=name,
            at_s=at_s,
            place=place,
            timing=CallTiming(sent_s=at_s),
            usage=CallUsage(),
            context=context,
            model=event.model,
        )
        waiting[name] = _Open(call, len(messages))
    yield from (left.call for left in waiting.values())


def _with_answer(intake: Intake, call: SpokenCall, message: object) -> SpokenCall:
    """Add the answer if the next message is one."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return call
    call.answer = list(chat.pieces(intake, "assistant", message))
    call.usage = agents_usage(message.get("usage"))
    return call
