"""TraceLab rounds (uw-syfi/TraceLab): one call of Claude Code or Codex a line, with lengths, times and tools but no content.

{"provider", "session_id", "round_index", "input_tokens_total", "prefix_tokens", "output_tokens", "timing_events": [...], "tools":
[...]}. A context grows with its total; prefix_tokens is what the provider had cached, so fewer of them mean a miss, not other
content. New tokens are divided among results and messages by their characters. The system prompt of a session has the tokens of its
first total beyond its messages, and is assumed to be the same for all sessions of a provider. Sub-agents are separate sessions: the
source does not link them.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentload.importers.parts import fields
from agentload.importers.parts.chat import Piece
from agentload.importers.parts.dialogue import Dialogue, Timing, Usage
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.order import by_session
from agentload.model.trace import Session

FILES: Final = ("*.jsonl",)
LICENCE: Final = "the public TraceLab traces are CC-BY 4.0 (uw-syfi/TraceLab): attribute them"

Count = Annotated[int, Meta(ge=0)]


class _Event(msgspec.Struct):
    event_type: str = ""
    timestamp: str | None = None
    content_chars: Count | None = None
    result_chars: Count | None = None
    tool_call_id: str | None = None


class _Tool(msgspec.Struct):
    tool_call_id: str | None = None
    tool_name: str | None = None


class _Round(msgspec.Struct):
    session_id: str
    input_tokens_total: Count
    output_tokens: Count
    provider: str = ""
    round_id: str | None = None
    model: str | None = None
    prefix_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None
    timing_events: list[_Event] = []
    tools: list[_Tool] = []


class _Call(msgspec.Struct, array_like=True):
    session: str
    at_s: float
    place: str
    done_s: float | None
    provider: str
    model: str | None
    usage: Usage
    news: list[tuple[str, int, str | None]]


def sniff(head: Head) -> float:
    """Look for the split of the input into prefix and rest."""
    return 1.0 if head.has("input_tokens_total", "session_id", "timing_events") else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each `session_id`."""
    origin_s: float | None = None
    for number, calls in enumerate(by_session(_calls(intake), _Call)):
        origin_s = calls[0].at_s if origin_s is None else origin_s
        name = f"s{number}"
        dialogue = Dialogue(intake=intake, origin_s=origin_s, lead=intake.identity.of("system", calls[0].provider))
        for position, call in enumerate(calls):
            dialogue.add(_news(call, f"{name}.{position}"))
            dialogue.call(
                timing=Timing(sent_s=call.at_s, done_s=call.done_s),
                usage=call.usage,
                answer=(Piece(role="assistant", tokens=call.usage.output or 1, key=f"{name}.a{position}"),),
                place=call.place,
                model=None if call.model == calls[0].model else call.model,
            )
        yield dialogue.session(name, workload="tracelab")


def _calls(intake: Intake) -> Iterator[_Call]:
    names: dict[str, str] = {}
    seen: set[int] = set()
    for place, round_ in intake.records(_Round):
        known = hash((round_.session_id, round_.round_id))
        if round_.round_id is not None and known in seen:
            intake.notes.meet(place, "a duplicate round")
            continue
        seen.add(known)
        asked = [event for event in round_.timing_events if event.event_type in {"user_message", "tool_result"}]
        said = [event for event in round_.timing_events if event.event_type in {"text", "reasoning", "tool_call"}]
        sent = max(_times(asked), default=None) or min(_times(said), default=None)
        if sent is None:
            intake.notes.skip(place, "no timing event with a time")
            continue
        # Results may come in a later round, so names are looked up in all of a session's tools so far.
        yield _Call(
            round_.session_id,
            sent,
            place,
            max(_times(said), default=None),
            round_.provider,
            round_.model,
            Usage(
                prompt=round_.input_tokens_total,
                output=round_.output_tokens,
                cached=round_.prefix_tokens,
                thinking=round_.reasoning_output_tokens,
            ),
            [_new(event, names) for event in asked],
        )
        names.update({tool.tool_call_id: tool.tool_name for tool in round_.tools if tool.tool_call_id and tool.tool_name})


def _times(events: list[_Event]) -> list[float]:
    return [at for event in events if event.timestamp is not None and (at := fields.iso(event.timestamp)) is not None]


def _new(event: _Event, names: dict[str, str]) -> tuple[str, int, str | None]:
    is_result = event.event_type == "tool_result"
    chars = event.result_chars if is_result else event.content_chars
    return ("tool" if is_result else "user"), chars or 0, names.pop(event.tool_call_id or "", None) if is_result else None


def _news(call: _Call, name: str) -> Iterator[Piece]:
    for number, (role, chars, tool) in enumerate(call.news):
        yield Piece(role="tool" if role == "tool" else "user", tokens=max(1, chars // 4), key=f"{name}.{number}", tool=tool)
