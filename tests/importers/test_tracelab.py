"""TraceLab: rounds with lengths and times, without content."""

from pathlib import Path
from typing import Any

import pytest

from agentload.errors import TraceError
from agentload.model.trace import Recorded, Segment, Turn
from tests.importers.importing import imported, jsonl, lengths

NOON = "2026-06-01T12:00:{:06.3f}Z"


def event(kind: str, at: float, **more: Any) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": NOON.format(at)} | more


def round_(
    number: int, total: int, out: int, events: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    known = {
        "provider": "claude",
        "session_id": "claude:1",
        "round_index": number,
        "round_id": f"m{number}",
        "model": "opus",
    }
    return (
        known
        | {
            "input_tokens_total": total,
            "prefix_tokens": 0,
            "output_tokens": out,
            "timing_events": events,
        }
        | more
    )


FIRST = round_(
    0,
    1000,
    50,
    [event("user_message", 0, content_chars=400), event("text", 2), event("tool_call", 3)],
    tools=[
        {"tool_call_id": "t1", "tool_name": "Bash"},
        {"tool_call_id": "t2", "tool_name": "Read"},
    ],
)
SECOND = round_(
    1,
    1110,
    9,
    [
        event("tool_result", 4, tool_call_id="t1", result_chars=80),
        event("tool_result", 10, tool_call_id="t2", result_chars=160),
        event("reasoning", 12),
    ],
    prefix_tokens=990,
    reasoning_output_tokens=3,
)


def test_rounds_are_turns_that_grow_by_what_their_totals_say(tmp_path: Path) -> None:
    (session,), summary = imported(tmp_path, {"t.jsonl": jsonl(SECOND, FIRST)})
    lead = session.turns[0].add[0]
    assert (lead.role, lead.tokens) == ("system", 900)
    assert session.turns == (
        Turn(
            add=(lead, Segment(role="user", tokens=100, key="s0.0.0")),
            output=50,
            recorded=Recorded(api_s=3.0, cached=0),
        ),
        Turn(
            add=(
                Segment(role="assistant", tokens=50, key="s0.a0"),
                Segment(role="tool", tokens=20, key="s0.1.0"),
                Segment(role="tool", tokens=40, key="s0.1.1"),
            ),
            output=9,
            wait="tool",
            wait_s=7.0,
            thinking=3,
            recorded=Recorded(api_s=2.0, cached=990, start_s=10.0),
        ),
    )
    assert (lengths(session), summary.recorded_hits) == ([1000, 1110], 990 / 2110)


def test_results_carry_the_names_of_their_tools_and_nothing_else(tmp_path: Path) -> None:
    (session,), _ = imported(tmp_path, {"t.jsonl": jsonl(FIRST, SECOND)})
    assert [segment.extra for segment in session.turns[1].add] == [
        (),
        (("name", '"Bash"'),),
        (("name", '"Read"'),),
    ]


def test_fewer_cached_tokens_are_a_miss_and_no_change_of_content(tmp_path: Path) -> None:
    missed = SECOND | {"prefix_tokens": 0}
    (session,), summary = imported(tmp_path, {"t.jsonl": jsonl(FIRST, missed)})
    assert session.turns[1].keep is None
    # Blocks of 16: 62 full ones of the first 1000 tokens are there again.
    assert summary.ideal_source == summary.ideal_import == 62 * 16 / 2110


def test_a_context_that_shrank_is_cut_where_the_cache_says(tmp_path: Path) -> None:
    shrunk = SECOND | {"input_tokens_total": 700, "prefix_tokens": 600}
    (session,), summary = imported(tmp_path, {"t.jsonl": jsonl(FIRST, shrunk)})
    assert [(segment.role, segment.tokens) for segment in session.turns[1].add] == [
        ("system", 600),
        ("assistant", 50),
        ("tool", 17),
        ("tool", 33),
    ]
    assert (session.turns[1].keep, lengths(session)) == (0, [1000, 700])
    assert [what for what, _, _ in summary.odd] == [
        "the context shrank without a record: cut at the cached prefix, or by length"
    ]
    assert summary.ideal_import == 37 * 16 / 1700


def test_a_round_that_is_there_twice_is_one_call(tmp_path: Path) -> None:
    (session,), summary = imported(tmp_path, {"t.jsonl": jsonl(FIRST, FIRST, SECOND)})
    assert (len(session.turns), summary.odd[0][0]) == (2, "a duplicate round")


def test_a_round_without_a_time_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"t\.jsonl:1: no timing event with a time"):
        imported(tmp_path, {"t.jsonl": jsonl(FIRST | {"timing_events": [{"event_type": "text"}]})})
