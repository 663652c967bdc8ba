"""Codex CLI's sessions: running totals, results and
messages that stand in the log twice, compaction.
"""

from pathlib import Path
from typing import Any

from agentload.model.trace import Recorded, Session, TurnRef
from tests.importers.entries import iso
from tests.importers.importing import imported, jsonl, lengths


def line(at: float, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": iso(at), "type": kind, "payload": payload}


def item(at: float, kind: str, **more: Any) -> dict[str, Any]:
    return line(at, "response_item", **({"type": kind} | more))


def event(at: float, kind: str, **more: Any) -> dict[str, Any]:
    return line(at, "event_msg", **({"type": kind} | more))


def usage(prompt: int, cached: int, output: int, thinking: int) -> dict[str, int]:
    names = (
        "input_tokens",
        "cached_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
        "total_tokens",
    )
    return dict(zip(names, (prompt, cached, output, thinking, prompt + output), strict=True))


def count(at: float, last: dict[str, int] | None, total: dict[str, int]) -> dict[str, Any]:
    return event(
        at,
        "token_count",
        info={"total_token_usage": total} | ({} if last is None else {"last_token_usage": last}),
    )


META = line(
    0,
    "session_meta",
    id="t1",
    timestamp=iso(0),
    cwd="/home/somebody",
    cli_version="0.9",
    instructions="i" * 400,
)
FIRST, SECOND = usage(1_000, 0, 60, 30), usage(1_200, 960, 10, 0)
TOTAL = {name: FIRST[name] + SECOND[name] for name in FIRST}
LINES = [
    META,
    line(0, "turn_context", turn_id="1", model="gpt"),
    item(1, "message", role="user", content=[{"type": "input_text", "text": "u" * 80}]),
    event(1, "user_message", message="u" * 80),
    item(
        5,
        "reasoning",
        summary=[{"type": "summary_text", "text": "t" * 40}],
        encrypted_content="x" * 5_000,
    ),
    item(
        7,
        "function_call",
        name="shell",
        arguments='{"command":["ls","/home/somebody"]}',
        call_id="c1",
    ),
    count(7.1, FIRST, FIRST),
    event(8, "exec_command_end", call_id="c1", aggregated_output="r" * 200, exit_code=0),
    item(9, "function_call_output", call_id="c1", output="r" * 200),
    event(9.5, "token_count", info=None, rate_limits={}),
    count(9.6, FIRST, FIRST),
    item(12, "message", role="assistant", content=[{"type": "output_text", "text": "done"}]),
    event(12, "agent_message", message="done"),
    count(12.1, SECOND, TOTAL),
]


def turns(session: Session) -> list[tuple[list[tuple[str, int]], int, int | None]]:
    return [
        ([(segment.role, segment.tokens) for segment in turn.add], turn.output, turn.thinking)
        for turn in session.turns
    ]


EXPECTED = [
    ([("system", 880), ("system", 100), ("user", 20)], 60, 30),
    ([("assistant", 21), ("assistant", 39), ("tool", 140)], 10, None),
]


def test_calls_begin_behind_an_input_and_take_the_next_count(tmp_path: Path) -> None:
    (session,), summary = imported(tmp_path, {"rollout-1.jsonl": jsonl(*LINES)})
    assert summary.format == "codex"
    assert turns(session) == EXPECTED
    assert lengths(session) == [1_000, 1_200]
    assert [(turn.wait, turn.wait_s, turn.recorded) for turn in session.turns] == [
        (None, 0.0, Recorded(api_s=6.0, cached=0)),
        ("tool", 2.0, Recorded(api_s=3.0, cached=960, start_s=9.0)),
    ]
    assert session.turns[1].add[2].extra == (("name", '"shell"'),)


def test_running_totals_alone_give_the_same(tmp_path: Path) -> None:
    """Counters are cumulative: a call has what they grew by, and a repeated total is no call."""
    only_totals = []
    for record in LINES:
        info = record["payload"].get("info")
        if info:
            info = {"total_token_usage": info["total_token_usage"]}
            only_totals.append({**record, "payload": {**record["payload"], "info": info}})
        else:
            only_totals.append(record)
    (session,), _ = imported(tmp_path, {"rollout-1.jsonl": jsonl(*only_totals)})
    assert turns(session) == EXPECTED


def test_a_result_that_comes_before_the_count_of_its_call_follows_it(tmp_path: Path) -> None:
    late = [*LINES[:6], LINES[8], LINES[6], *LINES[11:]]
    (session,), _ = imported(tmp_path, {"rollout-1.jsonl": jsonl(*late)})
    assert turns(session) == EXPECTED


def test_a_call_without_a_count_is_estimated_and_named(tmp_path: Path) -> None:
    silent = [record for record in LINES if record["payload"].get("type") != "token_count"]
    (session,), summary = imported(tmp_path, {"rollout-1.jsonl": jsonl(*silent)})
    assert lengths(session) == [120, 198]
    assert [(what, times) for what, times, _ in summary.odd] == [("an answer without usage", 2)]


def test_a_compaction_replaces_the_history(tmp_path: Path) -> None:
    third = usage(1_100, 0, 5, 0)
    more = [
        line(
            20,
            "compacted",
            message="s" * 400,
            replacement_history=[{"type": "message", "role": "user", "content": "h" * 80}],
        ),
        count(20.1, usage(0, 0, 0, 0), TOTAL),
        item(30, "message", role="user", content=[{"type": "input_text", "text": "v" * 80}]),
        item(33, "message", role="assistant", content=[{"type": "output_text", "text": "ok"}]),
        count(33.1, third, {name: TOTAL[name] + third[name] for name in third}),
    ]
    (session,), summary = imported(tmp_path, {"rollout-1.jsonl": jsonl(*LINES, *more)})
    assert (
        session.turns[2].keep,
        [(segment.role, segment.tokens) for segment in session.turns[2].add],
    ) == (1, [("user", 110), ("user", 110)])
    assert lengths(session)[2] == 1_100
    assert [what for what, _, _ in summary.dropped] == [
        "the call that wrote a compaction's summary: not in the transcript"
    ]


def test_a_thread_that_another_spawned_is_its_sub_agent(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "t1", "depth": 1}}}
    child = [
        line(7.5, "session_meta", id="t2", timestamp=iso(7.5), source=source),
        *[{**record} for record in LINES[1:7]],
    ]
    child = [
        child[0],
        *[
            {**record, "timestamp": iso(7.5 + number / 10)}
            for number, record in enumerate(child[1:])
        ],
    ]
    sessions, _ = imported(
        tmp_path, {"rollout-1.jsonl": jsonl(*LINES), "rollout-2.jsonl": jsonl(*child)}
    )
    assert [session.workload for session in sessions] == ["codex", "codex-subagent"]
    assert sessions[0].turns[0].spawn == ("s0.1",)
    assert sessions[0].turns[1].after == (TurnRef(session="s0.1", turn=-1),)


def test_unknown_lines_and_items_are_counted(tmp_path: Path) -> None:
    odd = [line(13, "brand_new"), item(14, "brand_new"), item(15, "ghost_snapshot")]
    (session,), summary = imported(tmp_path, {"rollout-1.jsonl": jsonl(*LINES, *odd)})
    assert turns(session) == EXPECTED
    assert [what for what, _, _ in summary.odd] == [
        "a line of an unknown type",
        "an item of an unknown type",
    ]


def test_counts_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    odd: Any = {"input_tokens": "many", "output_tokens": None}
    lines = [*LINES[:6], count(7.1, None, odd), *LINES[6:]]
    assert (
        imported(tmp_path, {"rollout-1.jsonl": jsonl(*lines)}, "codex")[0][0].turns[0].output
        == FIRST["output_tokens"]
    )
    lines = [*LINES[:6], count(7.1, odd, TOTAL), count(7.1, None, odd), *LINES[7:11]]
    imported(tmp_path, {"rollout-1.jsonl": jsonl(*lines)}, "codex")
