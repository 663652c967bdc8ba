"""Lines as LLMServingSim documents them: `dataset/example_trace.jsonl` and its agentic sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import TraceError
from agentload.model.trace import Segment, Session, Turn
from tests.importers.importing import imported, jsonl, lengths

# The first and third lines of the example, cut to what matters, and two with a common start.
FLAT = jsonl(
    {
        "input_toks": 10,
        "output_toks": 70,
        "arrival_time_ns": 46926808,
        "input_tok_ids": [*range(10)],
    },
    {
        "input_toks": 40,
        "output_toks": 32,
        "arrival_time_ns": 1046926808,
        "input_tok_ids": [*range(1000, 1032), *range(9000, 9008)],
        "output_tok_ids": [*range(32)],
    },
    {
        "input_toks": 36,
        "output_toks": 48,
        "arrival_time_ns": 1096926808,
        "input_tok_ids": [*range(1000, 1032), 9001, 9002, 9003, 9004],
    },
)
AGENT = jsonl(
    {
        "session_id": "task-0-run0",
        "arrival_time_ns": 4059740,
        "sub_requests": [
            {"input_toks": 1472, "output_toks": 133, "tool_duration_ns": 127348767},
            {"input_toks": 1682, "output_toks": 125, "tool_duration_ns": 0},
        ],
    }
)


def test_requests_share_what_their_token_ids_share(tmp_path: Path) -> None:
    sessions, summary = imported(tmp_path, {"w.jsonl": FLAT})
    assert summary.format == "llmservingsim"
    assert [session.start_s for session in sessions] == pytest.approx([0.0, 1.0, 1.05])
    assert [lengths(session) for session in sessions] == [[10], [40], [36]]
    assert [session.turns[0].output for session in sessions] == [70, 32, 48]
    one, other = (session.turns[0].add for session in sessions[1:])
    assert one[0] != other[0]
    assert summary.ideal_import == summary.ideal_source == pytest.approx(32 / 86)


def test_an_agents_calls_wait_for_their_tools_and_grow(tmp_path: Path) -> None:
    (session,), summary = imported(tmp_path, {"w.jsonl": AGENT})
    assert summary.format == "llmservingsim"
    assert session == Session(
        session="s0",
        workload="llmservingsim",
        start_s=0.0,
        turns=(
            Turn(add=(Segment(role="user", tokens=1472, key="s0.0"),), output=133),
            Turn(
                add=(
                    Segment(role="assistant", tokens=133, key="s0.a0"),
                    Segment(role="user", tokens=77, key="s0.1"),
                ),
                output=125,
                wait="tool",
                wait_s=0.127349,
            ),
        ),
    )


def test_both_kinds_may_be_in_one_file_and_a_session_with_ids_shares_by_them(
    tmp_path: Path,
) -> None:
    ids = [*range(32)]
    growing = {
        "session_id": 7,
        "arrival_time_ns": 0,
        "sub_requests": [
            {"input_toks": 32, "output_toks": 4, "tool_duration_ns": 10**9, "input_tok_ids": ids},
            {"input_toks": 48, "output_toks": 4, "input_tok_ids": [*ids, *range(100, 116)]},
        ],
    }
    (agent, *flat), _ = imported(tmp_path, {"w.jsonl": jsonl(growing) + FLAT})
    assert lengths(agent) == [32, 48]
    assert agent.turns[1].keep is None
    assert (agent.turns[1].wait, agent.turns[1].wait_s) == ("tool", 1.0)
    assert len(flat) == 3


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"arrival_time_ns": 3}, "neither sub_requests nor input_toks and output_toks"),
        ({"input_toks": 0, "output_toks": 1}, "input_toks: Expected `int` >= 1"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: dict[str, int], what: str) -> None:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, {"w.jsonl": FLAT + jsonl(line)})
    assert caught.value.message == f"{tmp_path / 'w.jsonl'}:4: {what}"


def test_a_session_that_the_log_names_never_meets_one_that_is_named_here(tmp_path: Path) -> None:
    call = {"input_toks": 10, "output_toks": 7}
    for name in ("0", "1", "2"):
        named = {"session_id": name, "arrival_time_ns": 0, "sub_requests": [call]}
        lines = jsonl({**call, "arrival_time_ns": 0}, named)
        sessions, _ = imported(tmp_path, {"w.jsonl": lines})
        assert len(sessions) == 2
