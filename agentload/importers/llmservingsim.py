"""LLMServingSim's workloads (casys-kaist/LLMServingSim): a request, or an agent's session, a line.

{"input_toks", "output_toks", "arrival_time_ns", "input_tok_ids": [...]}, or {"session_id",
"arrival_time_ns", "sub_requests": [{"input_toks", "output_toks", "tool_duration_ns", ...}]},
also both in one file. A call of a session is sent a tool's duration after the answer to
the one before it. Prompts are cut into blocks of `block` tokens by their token ids, so that
they share what these share; where a session has none, its context is taken to
grow if its lengths allow it. Roles are not in the source.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from agentload.importers.parts import (
    Grid,
    Head,
    Intake,
    Numbering,
    SizedCall,
    by_session,
    groups,
    requests,
)
from agentload.model.trace import Session
from agentload.plugins import Count, Positive

FILES: Final = ("*.jsonl",)


class _Call(msgspec.Struct):
    input_toks: Positive
    output_toks: Count
    tool_duration_ns: Count = 0
    input_tok_ids: list[Count] = []


class _Line(msgspec.Struct):
    arrival_time_ns: Count = 0
    session_id: str | int | None = None
    sub_requests: list[_Call] | None = None
    input_toks: Positive | None = None
    output_toks: Count | None = None
    input_tok_ids: list[Count] = []


def sniff(head: Head) -> float:
    """Look for the lengths of a request, or for a session's requests."""
    is_ours = head.has("input_toks", "output_toks") or head.has("sub_requests", "arrival_time_ns")
    return 0.95 if is_ours else 0.0


def sessions(intake: Intake, *, block: Positive = 16, grid: Grid = "keep") -> Iterator[Session]:
    """Yield a session for each line."""
    for group in groups(by_session(_calls(intake, Numbering(block)), SizedCall), grid):
        holds: requests.Holds = "context" if any(call.ids for call in group.calls) else "unknown"
        made = requests.session(intake, group, workload="llmservingsim", holds=holds)
        first, *later = made.turns
        # When these were sent depends on how fast the server answered.
        after_tools = (replace(turn, wait="tool", recorded=None) for turn in later)
        yield replace(made, turns=(first, *after_tools))


def _calls(intake: Intake, numbering: Numbering) -> Iterator[SizedCall]:
    for number, (place, line) in enumerate(intake.records(_Line)):
        at_s = line.arrival_time_ns / 1e9
        session = requests.session_name(line.session_id, str(number))
        delay_s: float | None = None
        for call in _requests(line):
            if call.input_tok_ids and len(call.input_tok_ids) != call.input_toks:
                intake.notes.meet(place, "input_tok_ids are not as many as input_toks")
            at_s += delay_s or 0.0
            yield SizedCall(
                session=session,
                at_s=at_s,
                place=place,
                prompt=call.input_toks,
                output=call.output_toks,
                ids=numbering.tokens(call.input_tok_ids),
                delay_s=delay_s,
            )
            delay_s = call.tool_duration_ns / 1e9
        if delay_s is None:
            intake.notes.skip(place, "neither sub_requests nor input_toks and output_toks")


def _requests(line: _Line) -> list[_Call]:
    """Return the requests of a line: of a session, or its only one."""
    if line.sub_requests is not None:
        return line.sub_requests
    if line.input_toks is None or line.output_toks is None:
        return []
    return [_Call(line.input_toks, line.output_toks, input_tok_ids=line.input_tok_ids)]
