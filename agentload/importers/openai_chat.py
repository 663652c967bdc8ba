"""Chats in OpenAI's format: whole conversations, or a request a line, with or without answers.

{"messages": [...], "tools": [...]} that ends with an assistant message is a conversation,
in which every answer is a call; so are {"conversations": [{"from", "value"}]} and lists
of {"id", "messages"}. Otherwise it is a request, which may be under "request" or "body"
(a batch file), with its answer under "response": {"choices", "usage"}, or a separate
"usage". Requests are grouped by session_id, conversation_id or trace_id, or because one's
messages start with all of another's. Times are "timestamp", "created_at", "created" or
"startTime", and "endTime", of a request, of messages or of a whole conversation; without
them all sessions start at 0, or every_s apart, and what follows an answer waits for nothing.
Lengths come from usage, or are estimated at bytes_per_token bytes a token.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    ContextPiece,
    Continuations,
    Head,
    Intake,
    JsonRecord,
    SpokenCall,
    chat,
    fields,
    files,
    requests,
)
from agentload.model.trace import Session
from agentload.plugins import Bytes, Seconds

FILES: Final = ("*.jsonl", "*.json")

_SESSIONS: Final = ("session_id", "conversation_id", "sessionId", "trace_id", "traceId", "chat_id")
_PEEKED: Final = 100  # records that are looked through for the first time that is known
_SENT: Final = (
    "startTime",
    "start_time",
    "timestamp",
    "created_at",
    "createdAt",
    "created",
    "time",
)
_DONE: Final = ("endTime", "end_time", "completed_at")
NO_TIMES: Final = CallTiming()


def sniff(head: Head) -> float:
    """Look for messages with roles."""
    found = _messages(_request(head.record))
    first = found[0] if found else None
    if isinstance(first, dict) and ("role" in first or "from" in first):
        return 0.7
    return 0.0


def sessions(
    intake: Intake, *, every_s: Seconds = 0.0, bytes_per_token: Bytes = 4.0
) -> Iterator[Session]:
    """Yield a session for each conversation."""
    measured = replace(intake, bytes_per_token=bytes_per_token)
    return requests.conversations(
        measured, _calls(measured), workload="openai_chat", every_s=every_s
    )


def _calls(intake: Intake) -> Iterator[SpokenCall]:
    """Yield the calls of each record: every answer of a conversation, or one request."""
    continuations = Continuations()
    records = enumerate(intake.records(JsonRecord))
    first = list(islice(records, _PEEKED))
    times = (fields.first_time(record, *_SENT) for _, (_, record) in first)
    since_s = fields.first_known(times) or 0.0
    for number, (place, record) in chain(first, records):
        request = _request(record)
        found = _messages(request)
        if not found:
            intake.notes.skip(place, "no messages")
            continue
        opening = list(chat.schemas(intake, files.as_list(request.get("tools"))))
        if _role(found[-1]) == "assistant":
            calls = conversation(
                intake,
                found,
                opening=opening,
                place=place,
                name=f"c{number}",
                timing=_timing(record),
                since_s=since_s,
            )
            for call in calls:
                since_s = call.at_s
                yield call
        else:
            context = chat.behind_system(opening, chat.messages(intake, found))
            yield _call(intake, record, context, place=place, continuations=continuations)


def conversation(
    intake: Intake,
    found: list[Any],
    *,
    opening: list[ContextPiece],
    place: str,
    name: str,
    timing: CallTiming = NO_TIMES,
    since_s: float = 0.0,
) -> Iterator[SpokenCall]:
    """Yield a call for each answer of a conversation, with what is new since the previous one.

    *timing* says when all of it began and ended. A call without a time of its own has the time
    that was known last: before any of its conversation, *since_s*. An answer that nothing was
    sent for, such as a greeting, is part of what is sent next.
    """
    times = _times(intake, found, timing)
    first_s = fields.first_known(times)
    known_s = since_s if first_s is None else first_s
    tools = opening
    new = list[ContextPiece]()
    before_s = None
    for message, at_s in zip(found, times, strict=True):
        pieces = list(chat.messages(intake, [message]))
        context = chat.behind_system(tools, new) if _role(message) == "assistant" else None
        if context:
            called = NO_TIMES if before_s is None else CallTiming(sent_s=before_s, done_s=at_s)
            yield SpokenCall(
                session=name,
                at_s=known_s,
                place=place,
                timing=called,
                usage=CallUsage(),
                context=context,
                answer=pieces,
                is_new=True,
            )
            tools, new = [], []  # only the first call adds the tools
        else:
            if context is not None:
                intake.notes.estimate("an answer that nothing was sent for: sent with what follows")
            new = new + pieces
        before_s = at_s
        known_s = known_s if at_s is None else at_s


def _times(intake: Intake, found: list[Any], timing: CallTiming) -> list[float | None]:
    """Return the time of each message; None where it is not known.

    Where no message has one, the conversation's start is when its first answer was asked for, and
    its end is when its only answer was done.
    """
    times = [fields.first_time(files.as_object(message), *_SENT) for message in found]
    if all(at_s is None for at_s in times):
        answers = [number for number, each in enumerate(found) if _role(each) == "assistant"]
        _note_unknown_times(intake, timing, len(answers))
        if answers and answers[0]:
            times[answers[0] - 1] = timing.sent_s
        if len(answers) == 1:
            times[answers[0]] = timing.done_s
    return times


def _timing(record: JsonRecord) -> CallTiming:
    """Return when a request, or all of a conversation, began and ended."""
    sent_s = fields.first_time(record, *_SENT)
    return CallTiming(sent_s=sent_s, done_s=fields.first_time(record, *_DONE))


def _note_unknown_times(intake: Intake, timing: CallTiming, answers: int) -> None:
    """Note what is not known of the times of a conversation whose messages have none."""
    if timing.sent_s is None:
        intake.notes.estimate("time of a conversation: not in the source")
    if answers > 1:
        intake.notes.estimate(
            "waits between the turns of a conversation: not in the source, and none are played"
        )


def _call(
    intake: Intake,
    record: JsonRecord,
    context: list[ContextPiece],
    *,
    place: str,
    continuations: Continuations,
) -> SpokenCall:
    """Return a record's request as a call, with its answer if the record has it."""
    request = _request(record)
    response = files.object_in(record.get("response"))
    response = files.object_in(response.get("body")) or response
    counted = fields.usage(response.get("usage") or record.get("usage"))
    answer = list[ContextPiece]()
    for message in chat.answers(response):
        answer += chat.pieces(intake, "assistant", message)
    limit = fields.count(request, "max_completion_tokens", "max_tokens")
    if counted.output is None and not answer and limit:
        intake.notes.estimate(
            "output tokens of a call: its limit, since the answer is not in the source"
        )
        counted = CallUsage(prompt=counted.prompt, output=limit, cached=counted.cached)
    timing = _timing(record)
    if timing.sent_s is None:
        intake.notes.estimate("time of a request: not in the source")
    named = next((str(record[name]) for name in _SESSIONS if record.get(name)), None)
    session = requests.session_name(named, "") or continuations.session(context)
    return SpokenCall(
        session=session,
        at_s=timing.sent_s or 0.0,
        place=place,
        timing=timing,
        usage=counted,
        context=context,
        answer=answer,
        model=files.as_text(request.get("model")),
    )


def _request(record: JsonRecord) -> JsonRecord:
    return files.object_in(record.get("request")) or files.object_in(record.get("body")) or record


def _messages(request: JsonRecord) -> list[Any]:
    inner = request.get("conversations", request.get("input"))
    return files.as_list(request.get("messages", inner))


def _role(message: object) -> str:
    if not isinstance(message, dict):
        return "user"
    return chat.role_of(message.get("role") or message.get("from"))
