"""kv-cache-tester traces: sessions of an agent and its sub-agents, with local block ids."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.errors import TraceError
from agentload.model.trace import Recorded, Segment, Session, Turn, TurnRef
from tests.importers.importing import ideal, imported, jsonl, lengths

B = 4


def call(t: float, ids: list[int], tokens: int, out: int, **more: Any) -> dict[str, Any]:
    known = {
        "type": "n",
        "model": "big",
        "input_types": ["text"],
        "output_types": ["text"],
        "stop": "tool_use",
        "api_time": 2.0,
    }
    return known | {"t": t, "in": tokens, "out": out, "hash_ids": ids} | more


RESULT = {"input_types": ["tool_result"]}
SUB: dict[str, Any] = {
    "t": 23.5,
    "type": "subagent",
    "agent_id": "agent_001",
    "duration_ms": 20_000,
    "requests": [
        call(0.0, [9, 10], 8, 3, model="small"),
        call(6.0, [9, 10, 11], 14, 1, model="small", think_time=4.0, **RESULT),
    ],
}
TRACE: dict[str, Any] = {
    "id": "trace_0001",
    "models": ["big", "small"],
    "block_size": B,
    "hash_id_scope": "local",
    "tool_tokens": 4,
    "system_tokens": 2,
    "requests": [
        call(0.0, [1, 2], 10, 3, think_time=0.0),
        SUB,
        call(25.0, [1, 2, 3, 4], 18, 2, think_time=23.0, stop="end_turn", **RESULT),
        call(90.0, [1, 5], 9, 7, think_time=63.0, type="s", ttft=0.7),
    ],
}


def segment(role: str, tokens: int, key: str) -> Segment:
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]  # a role by name


def test_a_trace_becomes_a_session_and_one_for_each_sub_agent(tmp_path: Path) -> None:
    sessions, summary = imported(tmp_path, {"w.jsonl": jsonl(TRACE)}, block=B)
    assert sessions == [
        Session(
            session="s0",
            workload="weka",
            start_s=0.0,
            extra=(("model", '"big"'),),
            turns=(
                Turn(
                    add=(segment("user", 4, "s0.0"), segment("user", 6, "s0.0+4")),
                    output=3,
                    spawn=("s0.1",),
                    recorded=Recorded(api_s=2.0),
                ),
                Turn(
                    add=(segment("assistant", 3, "s0.1"), segment("tool", 5, "s0.1+3")),
                    output=2,
                    wait="tool",
                    wait_s=1.5,  # 25 - 23.5: the sub-agent's 20 s are no wait of the parent's
                    after=(TurnRef(session="s0.1", turn=-1),),
                    recorded=Recorded(api_s=2.0, start_s=25.0),
                ),
                Turn(
                    add=(segment("user", 5, "s0.2"),),
                    output=7,
                    wait="user",
                    wait_s=63.0,
                    keep=1,
                    recorded=Recorded(ttft_s=0.7, api_s=2.0, start_s=90.0),
                ),
            ),
        ),
        Session(
            session="s0.1",
            workload="weka",
            turns=(
                Turn(
                    add=(segment("user", 8, "s0.1.0"),),
                    output=3,
                    wait="tool",
                    # it began 20 s before its result came at 23.5,
                    # and the call that started it ended at 2
                    wait_s=1.5,
                    model="small",
                    recorded=Recorded(api_s=2.0, start_s=3.5),
                ),
                Turn(
                    add=(segment("assistant", 3, "s0.1.1"), segment("tool", 3, "s0.1.1+3")),
                    output=1,
                    wait="tool",
                    wait_s=4.0,
                    model="small",
                    recorded=Recorded(api_s=2.0, start_s=9.5),
                ),
            ),
        ),
    ]
    assert (summary.sessions, summary.spawned, summary.calls) == (2, 1, 5)


def test_a_rewritten_history_is_no_result_but_for_what_makes_it_longer(tmp_path: Path) -> None:
    requests = [
        call(0.0, [1, 2, 3, 4, 5], 20, 3),
        call(9.0, [1, 6, 7, 8, 9, 10, 11], 28, 3, **RESULT),
        call(19.0, [1, 12], 8, 1, **RESULT),
    ]
    sessions, _ = imported(tmp_path, {"w.jsonl": jsonl(TRACE | {"requests": requests})}, block=B)
    roles = [[(part.role, part.tokens) for part in turn.add] for turn in sessions[0].turns]
    assert roles == [[("user", 4), ("user", 16)], [("user", 19), ("tool", 5)], [("user", 4)]]


def test_lengths_are_the_sources_and_sharing_is_of_the_sources_blocks(tmp_path: Path) -> None:
    sessions, summary = imported(
        tmp_path, {"w.jsonl": jsonl(TRACE, TRACE | {"id": "trace_0002"})}, block=B
    )
    assert [lengths(session) for session in sessions] == 2 * [[10, 18, 9], [8, 14]]
    calls = [([1, 2], 10), ([9, 10], 8), ([9, 10, 11], 14), ([1, 2, 3, 4], 18), ([1, 5], 9)]
    # Ids are local: the second trace shares nothing with the first.
    said: list[list[tuple[object, int]]] = [
        [((scope, ids[at // B]) if at // B < len(ids) else None, at) for at in range(length)]
        for scope in "ab"
        for ids, length in calls
    ]
    assert summary.ideal_source == summary.ideal_import == ideal(said, B)


def test_sessions_can_be_set_apart(tmp_path: Path) -> None:
    """The source has no start times: all begin at 0,
    and the summary says so, unless they are set apart.
    """
    text = jsonl(TRACE, TRACE, TRACE)
    at_zero, summary = imported(tmp_path, {"w.jsonl": text}, block=B)
    assert [session.start_s for session in at_zero] == 3 * [0.0, None]
    assert (
        "start times are not in the source; all sessions start at 0 s",
        1,
        None,
    ) in summary.estimated
    apart, summary = imported(tmp_path, {"w.jsonl": text}, block=B, every_s=60)
    assert [session.start_s for session in apart] == [0.0, None, 60.0, None, 120.0, None]
    assert apart[2].turns[1].recorded == Recorded(api_s=2.0, start_s=85.0)
    assert summary.estimated == ()


def test_parallel_sub_agents_are_all_waited_for(tmp_path: Path) -> None:
    subs = [SUB | {"t": 20.0, "duration_ms": 17_000}, SUB | {"t": 24.0, "duration_ms": 21_500}]
    (parent, first, second), _ = imported(
        tmp_path,
        {
            "w.jsonl": jsonl(
                TRACE | {"requests": [TRACE["requests"][0], *subs, TRACE["requests"][2]]}
            )
        },
        block=B,
    )
    assert parent.turns[0].spawn == ("s0.1", "s0.2")
    assert parent.turns[1].after == (
        TurnRef(session="s0.1", turn=-1),
        TurnRef(session="s0.2", turn=-1),
    )
    assert [session.turns[0].wait_s for session in (parent, first, second)] == [0.0, 1.0, 0.5]
    assert parent.turns[1].wait_s == 1.0


def test_times_of_a_sub_agent_may_be_the_traces(tmp_path: Path) -> None:
    absolute = SUB | {
        "requests": [request | {"t": request["t"] + 103.5} for request in SUB["requests"]],
        "t": 123.5,
    }
    requests = [call(100.0, [1, 2], 10, 3), absolute]
    (_, child), _ = imported(tmp_path, {"w.jsonl": jsonl(TRACE | {"requests": requests})}, block=B)
    assert [turn.recorded for turn in child.turns] == [
        Recorded(api_s=2.0, start_s=103.5),
        Recorded(api_s=2.0, start_s=109.5),
    ]


def test_a_sub_agent_that_no_call_started_or_that_never_ended_is_kept(tmp_path: Path) -> None:
    lone = {"requests": [SUB | {"t": 5.0, "duration_ms": None}]}
    (lone_one, only), summary = imported(
        tmp_path,
        {"w.jsonl": jsonl(TRACE | lone | {"requests": [*lone["requests"], call(60, [7], 4, 1)]})},
        block=B,
    )
    assert (only.session, only.start_s, lone_one.session, lone_one.start_s) == (
        "s0",
        60.0,
        "s0.1",
        0.0,
    )
    assert [what for what, _, _ in summary.odd] == [
        "a sub-agent without a spawning call: a separate session"
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"hash_id_scope": "global"},
            f"block_size {B}, hash_id_scope 'global': only block={B} and 'local' are supported",
        ),
        (
            {"block_size": 16},
            f"block_size 16, hash_id_scope 'local': only block={B} and 'local' are supported",
        ),
        ({"requests": []}, "no request of a known type with a length"),
        ({"requests": [{"type": "n", "in": "x"}]}, "requests[0].in: Expected `int`"),
        (
            {"requests": [{"type": "n", "in": 4, "out": 1, "hash_ids": ["x"]}]},
            "hash_ids of a request are not integers",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, {"w.jsonl": jsonl(TRACE | change)}, "weka", block=B)
    assert caught.value.message == f"{tmp_path / 'w.jsonl'}:1: {what}"


def test_ids_are_those_that_are_written_however_they_are_laid_out(tmp_path: Path) -> None:
    """Ids are read behind those of the request before only where
    they go on: 1 is no beginning of 12, and lists may be indented.
    """
    ids = [[1], [12], [1, 2], [1, 2, 3], [1], [], [1, 2, 34], [1, 2, 3, 4]]
    requests = [call(float(number), each, B * len(each) + 1, 1) for number, each in enumerate(ids)]
    said = msgspec.json.encode(TRACE | {"requests": requests})
    laid_out = {"plain": said + b"\n", "indented": msgspec.json.format(said, indent=2)}
    found = {
        name: imported(tmp_path / name, {"w.json": text}, block=B)
        for name, text in laid_out.items()
    }
    (session,), summary = found["plain"]
    assert found["indented"] == (
        [session],
        replace(summary, source_bytes=len(laid_out["indented"])),
    )
    assert lengths(session) == [B * len(each) + 1 for each in ids]
    # 1, 12, 2, 3, 34 and 4 behind 3: what is new at its place, each once.
    assert (
        summary.ideal_source
        == summary.ideal_import
        == B * (sum(map(len, ids)) - 6) / summary.prompt_tokens
    )


def test_odd_requests_are_counted(tmp_path: Path) -> None:
    requests = [
        call(5.0, [1], 4, 1),
        call(3.0, [1], 4, 1, api_time=None),
        {"type": "x"},
        {"type": "n"},
    ]
    (session,), summary = imported(
        tmp_path, {"w.json": jsonl(TRACE | {"requests": requests})}, block=B
    )
    assert len(session.turns) == 2
    assert {what for what, _, _ in summary.odd} == {
        "the clock jumps backwards",
        "a request of an unknown type",
        "a request without a length",
    }
    assert ("api_time is missing: included in the following wait", 1, None) in summary.estimated
