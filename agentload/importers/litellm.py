"""LiteLLM's logs: standard logging payloads and spend logs, as
JSON lines, one JSON array, or a table of LiteLLM_SpendLogs.

{"request_id" or "id", "call_type", "status", "prompt_tokens", "completion_tokens", "startTime",
"endTime", "completionStartTime", "model", "session_id" or "trace_id", "messages", "response",
"cache_hit"}. With messages (store_prompts_in_spend_logs) contexts and sharing are exact; without, a
request of a session is assumed to contain the one before if it is long enough. Failures, calls
other than chats, and hits of LiteLLM's own cache never reached a server as a chat, and are skipped.
"""

from collections.abc import Iterator
from typing import Final

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    Continuations,
    Head,
    Intake,
    JsonRecord,
    Placed,
    SpokenCall,
    chat,
    fields,
    files,
    requests,
)

FILES: Final = ("*.jsonl", "*.json", "*.csv")

_CHATS: Final = ("completion", "responses", "messages", "generate_content")


def sniff(head: Head) -> float:
    """Look for the fields that only LiteLLM has."""
    first = head.text.partition("\n")[0]
    columns = ("startTime", "completion_tokens", "call_type")
    if all(name in first for name in columns) and not first.startswith(("{", "[")):
        return 0.95
    if head.has("startTime", "endTime") and (head.has("call_type") or head.has("spend")):
        return 0.95
    return 0.0


@requests.reader(requests.conversations, workload="litellm")
def sessions(intake: Intake) -> Iterator[SpokenCall]:
    """Yield a session for each session id or trace id, and for each request without one."""
    continuations = Continuations()
    seen: set[int] = set()
    for place, record in _records(intake):
        if _is_left_out(intake, record):
            continue
        own = str(record.get("request_id") or record.get("id") or "")
        if own and hash(own) in seen:
            intake.notes.meet(place, "a duplicate request")
            continue
        seen.add(hash(own))
        sent_s = fields.seconds(record.get("startTime"))
        if sent_s is None:
            intake.notes.skip(place, "no startTime")
            continue
        # Calls that did not stream repeat their end as the time of their first token.
        first_s = fields.seconds(record.get("completionStartTime"))
        done_s = fields.seconds(record.get("endTime"))
        context = list(chat.messages(intake, files.list_in(record.get("messages"))))
        answers = chat.answers(files.object_in(record.get("response")))
        named = record.get("session_id") or record.get("trace_id")
        model = record.get("model_group") or record.get("model")
        session = place
        if named:
            session = f"+{named}"
        elif context:
            session = continuations.session(context)
        yield SpokenCall(
            session=session,
            at_s=sent_s,
            place=place,
            timing=CallTiming(
                sent_s=sent_s, first_s=None if first_s == done_s else first_s, done_s=done_s
            ),
            usage=_usage(record),
            context=context,
            answer=list(chat.messages(intake, answers)),
            model=files.as_text(model),
        )


def _records(intake: Intake) -> Placed[JsonRecord]:
    for path in intake.files:
        if path.name.removesuffix(".gz").removesuffix(".zst").endswith(".csv"):
            yield from fields.every_row(path, intake.notes)
        else:
            yield from intake.of(path, JsonRecord)


def _is_left_out(intake: Intake, record: JsonRecord) -> bool:
    kind = record.get("call_type")
    if isinstance(kind, str) and kind and not any(chat in kind for chat in _CHATS):
        intake.notes.drop("a call that is not a chat")
        return True
    if record.get("status") == "failure":
        intake.notes.drop("a failed request")
        return True
    if str(record.get("cache_hit")).lower() == "true":
        intake.notes.drop("a hit of LiteLLM's own cache")
        return True
    return False


def _usage(record: JsonRecord) -> CallUsage:
    metadata = files.object_in(record.get("metadata"))
    response = files.object_in(record.get("response"))
    inner = fields.usage(
        files.object_in(metadata.get("usage_object")) or files.object_in(response.get("usage"))
    )
    told = fields.usage({name: record.get(name) for name in ("prompt_tokens", "completion_tokens")})
    return CallUsage(
        prompt=told.prompt or inner.prompt,
        output=told.output or inner.output,
        cached=inner.cached,
        thinking=inner.thinking,
    )
