"""TraceLab rounds (uw-syfi/TraceLab): one call of Claude Code
or Codex a line, with lengths, times and tools but no content.

{"provider", "session_id", "round_index", "input_tokens_total", "prefix_tokens",
"output_tokens", "timing_events": [...], "tools": [...]}. A context grows with its total;
prefix_tokens is what the provider had cached, so fewer of them mean a miss, not other content.
New tokens are divided among results and messages by their characters. The system prompt of a
session has the tokens of its first total beyond its messages, and is assumed to be the same for
all sessions of a provider. Sub-agents are separate sessions: the source does not link them.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agentload.importers.parts import (
    CallTiming,
    CallUsage,
    ContextPiece,
    Head,
    Intake,
    SpokenCall,
    fields,
    requests,
)
from agentload.plugins import Count

FILES: Final = ("*.jsonl",)
LICENCE: Final = "the public TraceLab traces are CC-BY 4.0 (uw-syfi/TraceLab): attribute them"
_ASKED: Final = frozenset({"user_message", "tool_result"})
_SAID: Final = frozenset({"text", "reasoning", "tool_call"})


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


def sniff(head: Head) -> float:
    """Look for the split of the input into prefix and rest."""
    return 1.0 if head.has("input_tokens_total", "session_id", "timing_events") else 0.0


@requests.reader(requests.conversations, workload="tracelab")
def sessions(intake: Intake) -> Iterator[SpokenCall]:
    """Yield a session for each `session_id`."""
    # Of all sessions: the result of a tool may come in a later round than its call.
    names: dict[str, str] = {}
    seen: set[int] = set()
    for place, round_ in intake.records(_Round):
        known = hash((round_.session_id, round_.round_id))
        if round_.round_id is not None and known in seen:
            intake.notes.meet(place, "a duplicate round")
            continue
        seen.add(known)
        asked = [event for event in round_.timing_events if event.event_type in _ASKED]
        said = [event for event in round_.timing_events if event.event_type in _SAID]
        # when the last input was there, or else when the answer began
        sent_s = max(_times(asked), default=None) or min(_times(said), default=None)
        if sent_s is None:
            intake.notes.skip(place, "no timing event with a time")
            continue
        counts = {
            "prompt": round_.input_tokens_total,
            "cached": round_.prefix_tokens,
            "thinking": round_.reasoning_output_tokens,
        }
        yield SpokenCall(
            session=round_.session_id,
            at_s=sent_s,
            place=place,
            timing=CallTiming(sent_s=sent_s, done_s=max(_times(said), default=None)),
            usage=CallUsage(output=round_.output_tokens, **counts),
            context=[_new(event, names) for event in asked],
            model=round_.model,
            is_new=True,
            lead=round_.provider,
        )
        for tool in round_.tools:
            if tool.tool_call_id and tool.tool_name:
                names[tool.tool_call_id] = tool.tool_name


def _times(events: list[_Event]) -> list[float]:
    times = [fields.iso(event.timestamp) for event in events if event.timestamp is not None]
    return [at_s for at_s in times if at_s is not None]


def _new(event: _Event, names: dict[str, str]) -> ContextPiece:
    if event.event_type != "tool_result":
        return ContextPiece(role="user", tokens=max(1, (event.content_chars or 0) // 4), key="")
    tool = names.pop(event.tool_call_id or "", None)
    return ContextPiece(
        role="tool", tokens=max(1, (event.result_chars or 0) // 4), key="", tool=tool
    )
