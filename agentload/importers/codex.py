"""Codex CLI's sessions: ~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl and archived_sessions.

{"timestamp", "type": "session_meta" | "turn_context" | "response_item" | "event_msg" |
"compacted", "payload"}. A call starts with the model's first item after a message or a
result, and its usage is the next token_count: last_token_usage, or the growth of the running
total; repeated counts are not calls. input_tokens includes cached ones. Results are in the
log twice, as exec_command_end and function_call_output, and so are messages: items count,
events do not. The tools, and in old logs the instructions, are the tokens of the first prompt
beyond its messages. A compaction's context is its replacement_history, or else its message.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload.importers.parts import (
    AgentTranscript,
    CallTiming,
    CallUsage,
    ContextPiece,
    Head,
    ImportNotes,
    Intake,
    JsonRecord,
    TranscriptEntry,
    chat,
    fields,
    files,
    records,
    transcripts,
)
from agentload.model.trace import Session

FILES: Final = ("rollout-*.jsonl",)

_KINDS: Final = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}
)
_OWN: Final = frozenset(
    {
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "reasoning",
        "tool_search_call",
        "web_search_call",
    }
)
"""Items that the model wrote, besides its messages."""
_SHOWN: Final = frozenset({"name", "arguments", "input", "action"})
"""Fields of a tool's call that are part of the context."""
_RESULTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "tool_search_output"}
)
_SILENT: Final = frozenset({"ghost_snapshot", "compaction", "compaction_summary"})


def sniff(head: Head) -> float:
    """Look for the envelope of a rollout."""
    is_one = head.has("timestamp", "type", "payload") and str(head.record["type"]) in _KINDS
    return 0.95 if is_one else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each file with a call."""
    return transcripts.sessions(intake, (_transcript(intake, path) for path in intake.files))


def _transcript(intake: Intake, path: Path) -> AgentTranscript:
    _, first = next(records(path, JsonRecord, ImportNotes("lenient")), ("", {}))
    meta: JsonRecord = {}
    if first.get("type") == "session_meta":
        meta = files.as_object(first.get("payload"))
    spawned_by: str | None = None
    match meta.get("source"):
        case {"subagent": {"thread_spawn": {"parent_thread_id": str(parent)}}}:
            spawned_by = parent
        case _:
            pass
    return AgentTranscript(
        read=lambda: list(_Rollout(intake=intake).entries(path)),
        key=str(meta.get("id") or path.stem),
        workload="codex-subagent" if spawned_by else "codex",
        began_s=fields.stamp(meta) or fields.stamp(first) or 0.0,
        lead=f"codex {meta.get('cli_version')}",
        spawned_by=spawned_by,
    )


@dataclass(slots=True, kw_only=True)
class _Rollout:
    """A file being converted to entries."""

    intake: Intake
    model: str | None = None
    tip: str | None = None
    count: int = 0
    input_s: float | None = None
    """When the latest message or result was written."""
    names: dict[str, str] = field(default_factory=dict)
    """Tools by call."""
    total: dict[str, int] = field(default_factory=dict)
    answer: list[ContextPiece] = field(default_factory=list)
    """The model's items since the last input."""
    is_open: bool = False
    sent_s: float | None = None
    done_s: float | None = None
    place: str = ""
    queue: list[ContextPiece] = field(default_factory=list)
    """Results that arrived before the usage of their call."""

    def entries(self, path: Path) -> Iterator[TranscriptEntry]:
        """Read a file."""
        for place, record in records(path, JsonRecord, self.intake.notes):
            payload = record.get("payload")
            if not isinstance(payload, dict) or str(record.get("type")) not in _KINDS:
                self.intake.notes.meet(place, "a line of an unknown type")
                continue
            at_s = fields.stamp(record)
            match record["type"]:
                case "session_meta":
                    yield from self._instructions(payload, place)
                case "turn_context":
                    self.model = payload.get("model") or self.model
                case "compacted":
                    yield from self._close(CallUsage())
                    yield from self._compact(payload, place)
                case "response_item":
                    yield from self._item(payload, place, at_s)
                case _:
                    if payload.get("type") == "token_count":
                        yield from self._count(payload.get("info"))
        yield from self._close(CallUsage())

    def _item(self, item: JsonRecord, place: str, at_s: float | None) -> Iterator[TranscriptEntry]:
        kind = str(item.get("type"))
        is_message = kind == "message"
        if kind in _SILENT:
            return
        if kind in _OWN or (is_message and item.get("role") == "assistant"):
            if self.is_open and self.queue:
                yield from self._close(CallUsage())
            if not self.is_open:
                self.is_open = True
                self.sent_s = self.input_s or at_s
                self.place = place
            self.done_s = at_s
            self.answer += self._pieces_of_model(item)
            return
        if kind not in _RESULTS and not is_message:
            self.intake.notes.meet(place, "an item of an unknown type")
            return
        self.input_s = at_s
        pieces = list(self._pieces_of_message(item) if is_message else self._result(item))
        if self.is_open:
            self.queue += pieces
        elif pieces:
            yield self._entry(place, pieces)

    def _pieces_of_message(self, message: JsonRecord) -> Iterator[ContextPiece]:
        """Read a message that was sent to the model."""
        return chat.pieces(self.intake, chat.role_of(message.get("role")), message)

    def _result(self, item: JsonRecord) -> Iterator[ContextPiece]:
        tool = self.names.get(str(item.get("call_id")))
        return chat.pieces(self.intake, "tool", {"content": item.get("output")}, tool=tool)

    def _pieces_of_model(self, item: JsonRecord) -> Iterator[ContextPiece]:
        """Read what the model wrote: a message, its reasoning, or a call of a tool."""
        match item.get("type"):
            case "message":
                said = item
            case "reasoning":
                said = {"content": item.get("summary") or item.get("content")}
            case _:
                name = files.as_text(item.get("name"))
                if name is not None:
                    self.names[str(item.get("call_id"))] = name
                shown = {key: item[key] for key in item if key in _SHOWN}
                said = {"content": msgspec.json.encode(shown).decode()}
        return chat.pieces(self.intake, "assistant", said)

    def _count(self, info: object) -> Iterator[TranscriptEntry]:
        """End the open call with the usage that a count of tokens has."""
        counted = files.as_object(info)
        last = counted.get("last_token_usage")
        total = counted.get("total_token_usage")
        before = self.total
        if isinstance(total, dict):
            total = _counts(total)
            if total == before:
                return
            self.total = total
            if not isinstance(last, dict):
                last = {name: count - before.get(name, 0) for name, count in total.items()}
        counts = _counts(files.as_object(last))
        if counts.get("output_tokens", 0) < 1 or not self.is_open:
            return
        at_least_none = {name: max(0, count) for name, count in counts.items()}
        yield from self._close(
            CallUsage(
                prompt=at_least_none.get("input_tokens"),
                output=at_least_none["output_tokens"],
                cached=at_least_none.get("cached_input_tokens"),
                thinking=at_least_none.get("reasoning_output_tokens"),
            )
        )

    def _close(self, usage: CallUsage) -> Iterator[TranscriptEntry]:
        if not self.is_open:
            return
        if usage.prompt is None:
            self.intake.notes.meet(self.place, "an answer without usage")
        timing = CallTiming(sent_s=self.sent_s, done_s=self.done_s)
        yield self._entry(self.place, self.answer, timing=timing, usage=usage, model=self.model)
        self.is_open = False
        self.answer = []
        if self.queue:
            yield self._entry(self.place, self.queue)
            self.queue = []

    def _compact(self, payload: JsonRecord, place: str) -> Iterator[TranscriptEntry]:
        """Drop the history, and begin a new one with what a compaction leaves."""
        self.intake.notes.drop("the call that wrote a compaction's summary: not in the transcript")
        history = files.as_list(payload.get("replacement_history"))
        pieces = list(chat.messages(self.intake, history))
        if not pieces:
            summary = {"content": payload.get("message")}
            pieces = list(chat.pieces(self.intake, "user", summary))
        self.tip = None
        yield self._entry(place, pieces)

    def _instructions(self, payload: JsonRecord, place: str) -> Iterator[TranscriptEntry]:
        said = payload.get("base_instructions") or payload.get("instructions")
        text = said.get("text") if isinstance(said, dict) else said
        if isinstance(text, str) and self.tip is None:
            pieces = chat.pieces(self.intake, "system", {"content": text})
            yield self._entry(place, list(pieces))

    def _entry(self, place: str, pieces: list[ContextPiece], **more: Any) -> TranscriptEntry:
        self.count += 1
        entry = TranscriptEntry(
            id=f"#{self.count}",
            parent=self.tip,
            place=place,
            at_s=None,
            pieces=tuple(pieces),
            **more,
        )
        self.tip = entry.id
        return entry


def _counts(said: JsonRecord) -> dict[str, int]:
    """Return what is a number of tokens."""
    return {name: count for name, count in said.items() if type(count) is int}
