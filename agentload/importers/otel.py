"""OpenTelemetry spans of model calls (GenAI semantic conventions):
OTLP's JSON, inference-perf's files, or a span a line.

{"resourceSpans": [...]}, {"trace_id", "spans": [...]}, or {"trace_id", "span_id",
"attributes", ...}. Calls are spans whose gen_ai.operation.name is chat, text_completion
or generate_content. They form sessions by gen_ai.conversation.id or else by trace, and
split by the agents (invoke_agent) around them: an agent inside another is its sub-agent.
Lengths are those of gen_ai.usage; with gen_ai.input.messages contexts and sharing are
exact, without them a call is assumed to contain the one before if it is long enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, Final, Literal

import msgspec

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    ContextPiece,
    Head,
    ImportNotes,
    Intake,
    JsonRecord,
    SpokenCall,
    chat,
    fields,
    files,
    order,
    requests,
    transcripts,
)
from agentload.model.record import Record
from agentload.model.trace import Session

FILES: Final = ("*.jsonl", "*.json")
_CHATS: Final = frozenset({"chat", "text_completion", "generate_content"})
_CONVERSATION: Final = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
_COUNTS: Final = {
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
    ),
}
_SPAN: Final = (("trace_id", "spans"), ("span_id", "attributes"), ("context", "attributes"))
"""Fields of a record that is a span, or has some."""
_AT: Final = ("timeUnixNano", "time_unix_nano", "timestamp")
Kind = Literal["chat", "agent", "tool", "other"]


class Span(Record):
    """One span, its attributes as plain values."""

    trace: str
    id: str
    parent: str | None
    start_s: float
    end_s: float
    attributes: JsonRecord
    events: tuple[tuple[str, float | None], ...] = ()


class _Row(SpokenCall, kw_only=True):
    """A span, as a call where it is a chat."""

    id: str
    parent: str | None
    end_s: float
    kind: Kind


def sniff(head: Head) -> float:
    """Look for spans, and for the names of the conventions among them."""
    is_span = b"resourceSpans" in head.bytes or any(head.has(*names) for names in _SPAN)
    if not is_span:
        return 0.0
    return 0.95 if b"gen_ai." in head.bytes else 0.6


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each agent of each conversation or trace."""
    names = _conversations(intake)
    return order.in_order(_families(intake, order.by_session(_rows(intake, names), _Row)))


def _conversations(intake: Intake) -> dict[str, str]:
    """Find the conversations of traces in a first pass over all files."""
    found: dict[str, str] = {}
    for path in intake.files:
        for _, record in files.records(path, JsonRecord, ImportNotes("lenient")):
            for span in spans(record):
                if span is None:
                    continue
                name = fields.first(span.attributes, *_CONVERSATION)
                if name is not None:
                    found[span.trace] = str(name)
    return found


def _rows(intake: Intake, names: Mapping[str, str]) -> Iterator[_Row]:
    for place, record in intake.records(JsonRecord):
        for span in spans(record):
            if span is None:
                intake.notes.skip(place, "a span without an id or a time")
                continue
            row = _Row(
                session=requests.session_name(names.get(span.trace), span.trace),
                at_s=span.start_s,
                place=place,
                id=span.id,
                parent=span.parent,
                end_s=span.end_s,
                kind=_kind(span.attributes),
                timing=CallTiming(sent_s=span.start_s, done_s=span.end_s),
                usage=CallUsage(),
                context=[],
            )
            if row.kind == "chat":
                _call(intake, row, span)
            yield row


def _kind(attributes: JsonRecord) -> Kind:
    operation = fields.first(attributes, "gen_ai.operation.name", "llm.request.type")
    if str(operation) in _CHATS:
        return "chat"
    if str(operation) in {"invoke_agent", "create_agent"}:
        return "agent"
    if operation == "execute_tool":
        return "tool"
    prompt = fields.first(attributes, *_COUNTS["input_tokens"])
    return "chat" if operation is None and prompt is not None else "other"


def _call(intake: Intake, row: _Row, span: Span) -> None:
    said = span.attributes
    counts = {name: fields.first(said, *names) for name, names in _COUNTS.items()}
    row.usage = fields.usage(counts)
    first_tokens = (at_s for name, at_s in span.events if _is_first_token(name))
    row.timing = msgspec.structs.replace(row.timing, first_s=next(first_tokens, None))
    row.model = files.as_text(fields.first(said, "gen_ai.request.model", "gen_ai.response.model"))
    context = list[ContextPiece]()
    system = said.get("gen_ai.system_instructions")
    if system:
        content = files.list_in(system) or system
        context += chat.pieces(intake, "system", {"content": content})
    sent = files.list_in(said.get("gen_ai.input.messages"))
    context += chat.messages(intake, sent or _numbered_messages(said, "gen_ai.prompt"))
    tools = chat.schemas(intake, files.list_in(said.get("gen_ai.tool.definitions")))
    row.context = chat.behind_system(tools, context)
    answer = files.list_in(said.get("gen_ai.output.messages"))
    row.answer = list(
        chat.messages(intake, answer or _numbered_messages(said, "gen_ai.completion"))
    )


def _is_first_token(event: str) -> bool:
    return "first_token" in event.replace(" ", "_").lower()


def _families(intake: Intake, found: Iterator[list[_Row]]) -> Iterator[tuple[float, list[Session]]]:
    for group in order.groups(found):
        agents = list(_transcripts(group.calls))
        if not agents:
            intake.notes.drop("a trace without a chat")
        yield from transcripts.families(
            intake, agents, name=f"{group.name}.", origin_s=group.origin_s
        )


def _transcripts(rows: Sequence[_Row]) -> Iterator[transcripts.AgentTranscript]:
    by_id = {row.id: row for row in rows}
    scopes: dict[str, list[_Row]] = {}
    above: dict[str, str | None] = {}
    for row in rows:
        agents = _agents(row, by_id)
        scope = agents[0] if len(agents) > 1 else ""
        if row.kind in {"chat", "tool"}:
            scopes.setdefault(scope, []).append(row)
            above[scope] = None
            if scope:
                above[scope] = agents[1] if len(agents) > 2 else ""
    for scope, inside in scopes.items():
        if any(row.kind == "chat" for row in inside):
            yield transcripts.AgentTranscript(
                read=partial(_entries, inside),
                key=scope,
                workload="otel-subagent" if scope else "otel",
                began_s=inside[0].at_s,
                spawned_by=above[scope],
            )


def _agents(row: _Row, by_id: Mapping[str, _Row]) -> list[str]:
    """Return the agents around a span, innermost first."""
    found: list[str] = []
    seen: set[str] = set()
    parent = by_id.get(row.parent or "")
    while parent is not None and parent.id not in seen:
        seen.add(parent.id)
        if parent.kind == "agent":
            found.append(parent.id)
        parent = by_id.get(parent.parent or "")
    return found


def _entries(rows: Sequence[_Row]) -> list[transcripts.TranscriptEntry]:
    """Return the calls; those that follow a tool waited for it."""
    tools, calls = ([row for row in rows if row.kind == kind] for kind in ("tool", "chat"))
    for before, row in pairwise(calls):
        if any(before.end_s <= tool.end_s <= row.at_s for tool in tools):
            row.asked = "tool"
    return list(requests.entries(calls, calls[0].id))


def _numbered_messages(said: JsonRecord, name: str) -> list[JsonRecord]:
    """Read messages that older instrumentations split into attributes,
    such as gen_ai.prompt.0.role and gen_ai.prompt.0.content.
    """
    found: list[JsonRecord] = []
    for number in count():
        role = f"{name}.{number}.role"
        content = f"{name}.{number}.content"
        if role not in said and content not in said:
            break
        found.append({"role": said.get(role, "assistant"), "content": said.get(content)})
    return found


def spans(record: JsonRecord) -> Iterator[Span | None]:
    """Yield a record's spans; None for one without an id or a time."""
    for resource in _objects(record, "resourceSpans", "resource_spans"):
        for scope in _objects(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            for span in _objects(scope, "spans"):
                yield _span(span, None)
    for span in _objects(record, "spans"):
        yield _span(span, record.get("trace_id"))
    if not {"resourceSpans", "resource_spans", "spans"} & record.keys():
        yield _span(record, None)


def _objects(found: JsonRecord, *names: str) -> list[JsonRecord]:
    """Return the objects in the first of these fields that there is."""
    return files.objects(next((found[name] for name in names if name in found), None))


def _span(found: JsonRecord, trace: object) -> Span | None:
    context = files.as_object(found.get("context"))
    own = fields.first(found, "spanId", "span_id") or context.get("span_id")
    trace = fields.first(found, "traceId", "trace_id") or context.get("trace_id") or trace
    start = fields.first(found, "startTimeUnixNano", "start_time_unix_nano", "start_time")
    end = fields.first(found, "endTimeUnixNano", "end_time_unix_nano", "end_time")
    start_s = fields.seconds(start)
    end_s = fields.seconds(end)
    if own is None or start_s is None or end_s is None:
        return None
    parent = fields.first(found, "parentSpanId", "parent_span_id", "parent_id")
    events = []
    for event in _objects(found, "events"):
        at_s = fields.seconds(fields.first(event, *_AT))
        events.append((str(event.get("name")), at_s))
    return Span(
        trace=str(trace),
        id=str(own),
        parent=str(parent) if parent else None,
        start_s=start_s,
        end_s=max(start_s, end_s),
        attributes=_attributes(found.get("attributes")),
        events=tuple(events),
    )


def _attributes(found: object) -> JsonRecord:
    if isinstance(found, dict):
        return found
    return {str(each.get("key")): _value(each.get("value")) for each in files.objects(found)}


def _value(found: object) -> Any:  # noqa: ANN401  # an attribute is of any JSON type
    match found:
        case {"stringValue": value} | {"doubleValue": value} | {"boolValue": value}:
            return value
        case {"intValue": value}:
            if isinstance(value, str):
                return fields.whole(value)
            return value
        case {"arrayValue": {"values": list(values)}}:
            return [_value(value) for value in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _attributes(values)
        case _:
            return found
