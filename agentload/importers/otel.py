"""OpenTelemetry spans of model calls (GenAI semantic conventions): OTLP's JSON, inference-perf's files, or a span a line.

{"resourceSpans": [...]}, {"trace_id", "spans": [...]}, or {"trace_id", "span_id", "attributes", ...}. Calls are spans whose
gen_ai.operation.name is chat, text_completion or generate_content. They belong together by gen_ai.conversation.id or else by trace, and
apart by the agents (invoke_agent) around them: an agent inside another is its sub-agent. Lengths are gen_ai.usage's; with
gen_ai.input.messages contexts and what they share are exact, without them a call is taken to hold the one before where it is long
enough for that.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec

from agentload.importers.parts import chat, families
from agentload.importers.parts.dialogue import Timing, Usage
from agentload.importers.parts.entries import Entry
from agentload.importers.parts.families import Transcript
from agentload.importers.parts.files import parsed, records
from agentload.importers.parts.grouped import grouped
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.order import in_order
from agentload.importers.parts.pieces import Piece
from agentload.importers.parts.spans import Attributes, Span, spans
from agentload.importers.parts.usage import usage
from agentload.model.trace import Session

FILES: Final = ("*.jsonl", "*.json")
LICENCE: Final = None

_CHATS: Final = frozenset({"chat", "text_completion", "generate_content"})
_CONVERSATION: Final = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
_COUNTS: Final = (
    ("input_tokens", ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")),
    ("output_tokens", ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")),
    ("cached_tokens", ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")),
)
Kind = Literal["chat", "agent", "tool", "other"]


class _Row(msgspec.Struct, kw_only=True):
    session: str
    at_s: float
    place: str
    id: str
    parent: str | None
    end_s: float
    kind: Kind
    first_s: float | None = None
    usage: Usage | None = None
    model: str | None = None
    context: list[Piece] = []
    answer: list[Piece] = []


def sniff(head: Head) -> float:
    """Look for spans, and for the names of the conventions among them."""
    if b"resourceSpans" in head.bytes or (
        head.has("trace_id", "spans") or head.has("span_id", "attributes") or head.has("context", "attributes")
    ):
        return 0.95 if b"gen_ai." in head.bytes else 0.6
    return 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each agent of each conversation or trace."""
    names = _conversations(intake)
    return in_order(_families(intake, grouped(_rows(intake, names), _Row)))


def _conversations(intake: Intake) -> dict[str, str]:
    """Find the conversation of each trace that names one, in a first look at all files."""
    found: dict[str, str] = {}
    for path in intake.files:
        for _, record in records(path, dict[str, Any], Notes("lenient")):
            for span in spans(record):
                name = None if span is None else _first(span.attributes, *_CONVERSATION)
                if span is not None and name is not None:
                    found[span.trace] = str(name)
    return found


def _rows(intake: Intake, names: Mapping[str, str]) -> Iterator[_Row]:
    for place, record in intake.records(dict[str, Any]):
        for span in spans(record):
            if span is None:
                intake.notes.skip(place, "a span without an id or a time")
                continue
            row = _Row(
                session=f"+{names[span.trace]}" if span.trace in names else span.trace,
                at_s=span.start_s,
                place=place,
                id=span.id,
                parent=span.parent,
                end_s=span.end_s,
                kind=_kind(span.attributes),
            )
            if row.kind == "chat":
                _call(intake, row, span)
            yield row


def _kind(attributes: Attributes) -> Kind:
    operation = _first(attributes, "gen_ai.operation.name", "llm.request.type")
    if operation in _CHATS:
        return "chat"
    if operation in {"invoke_agent", "create_agent"}:
        return "agent"
    if operation == "execute_tool":
        return "tool"
    is_counted = operation is None and _first(attributes, *_COUNTS[0][1]) is not None
    return "chat" if is_counted else "other"


def _call(intake: Intake, row: _Row, span: Span) -> None:
    said = span.attributes
    row.usage = usage({name: _first(said, *names) for name, names in _COUNTS})
    row.model = _text(_first(said, "gen_ai.request.model", "gen_ai.response.model"))
    row.first_s = next((at_s for name, at_s in span.events if "first_token" in name.replace(" ", "_").lower()), None)
    system = said.get("gen_ai.system_instructions")
    told = [*chat.pieces(intake, "system", {"content": _json(system) or system})] if system else []
    told += chat.messages(intake, _json(said.get("gen_ai.input.messages")) or _numbered(said, "gen_ai.prompt"))
    row.context += chat.behind_system(chat.schemas(intake, _json(said.get("gen_ai.tool.definitions"))), told)
    row.answer += chat.messages(intake, _json(said.get("gen_ai.output.messages")) or _numbered(said, "gen_ai.completion"))


def _families(intake: Intake, groups: Iterator[list[_Row]]) -> Iterator[tuple[float, list[Session]]]:
    origin_s: float | None = None
    for number, rows in enumerate(groups):
        origin_s = rows[0].at_s if origin_s is None else origin_s
        found = list(_transcripts(rows))
        if not found:
            intake.notes.drop("a trace without a chat")
        yield from families.grown(intake, found, name=f"s{number}.", origin_s=origin_s)


def _transcripts(rows: Sequence[_Row]) -> Iterator[Transcript]:
    by_id = {row.id: row for row in rows}
    scopes: dict[str, list[_Row]] = {}
    above: dict[str, str | None] = {}
    for row in rows:
        agents = _agents(row, by_id)
        scope = agents[0] if len(agents) > 1 else ""
        if row.kind in {"chat", "tool"}:
            scopes.setdefault(scope, []).append(row)
            above[scope] = None if not scope else agents[1] if len(agents) > 2 else ""
    for scope, inside in scopes.items():
        if any(row.kind == "chat" for row in inside):
            yield Transcript(
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


def _entries(rows: Sequence[_Row]) -> list[Entry]:
    """Return calls, each behind what it sends, if that is known."""
    found: list[Entry] = []
    tip: str | None = None
    tools = [row.end_s for row in rows if row.kind == "tool"]
    done_s: float | None = None
    for row in rows:
        if row.kind != "chat":
            continue
        if row.context:
            found.append(Entry(id=f"{row.id}<", parent=None, place=row.place, at_s=None, pieces=tuple(row.context)))
            tip = f"{row.id}<"
        used = done_s is not None and any(done_s <= at_s <= row.at_s for at_s in tools)
        counted = row.usage or Usage()
        answer = tuple(row.answer) or (Piece(role="assistant", tokens=counted.output or 1, key=f"{row.id}>"),)
        found.append(
            Entry(
                id=row.id,
                parent=tip,
                place=row.place,
                at_s=row.end_s,
                pieces=answer,
                timing=Timing(sent_s=row.at_s, first_s=row.first_s, done_s=row.end_s),
                usage=counted,
                model=row.model,
                grows=None if row.context else row.id,
                asked="tool" if used else None,
            )
        )
        tip, done_s = row.id, row.end_s
    return found


def _numbered(said: Attributes, name: str) -> list[dict[str, Any]]:
    """Read messages that older instrumentations spread over attributes, such as gen_ai.prompt.0.role and gen_ai.prompt.0.content."""
    found: list[dict[str, Any]] = []
    while f"{name}.{len(found)}.role" in said or f"{name}.{len(found)}.content" in said:
        at = f"{name}.{len(found)}"
        found.append({"role": said.get(f"{at}.role", "assistant"), "content": said.get(f"{at}.content")})
    return found


def _json(found: object) -> list[Any]:
    found = parsed(found) if isinstance(found, str) else found
    return found if isinstance(found, list) else []


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _first(said: Attributes, *names: str) -> Any:  # noqa: ANN401  # an attribute is of any JSON type
    return next((said[name] for name in names if said.get(name) is not None), None)
