"""Claude Code's sessions: answers in several lines,
parallel tools, sub-agents, resumed sessions, compaction.
"""

from pathlib import Path
from typing import Any

from agentload.model.trace import Recorded, Session, TurnRef
from tests.importers.entries import iso
from tests.importers.importing import imported, jsonl, lengths


def line(uuid: str, parent: str | None, at: float, kind: str, **more: Any) -> dict[str, Any]:
    envelope = {
        "sessionId": "main",
        "cwd": "/home/somebody/project",
        "version": "2.1.0",
        "isSidechain": False,
        "userType": "external",
    }
    return (
        envelope | {"uuid": uuid, "parentUuid": parent, "timestamp": iso(at), "type": kind} | more
    )


def user(uuid: str, parent: str | None, at: float, content: object, **more: Any) -> dict[str, Any]:
    return line(uuid, parent, at, "user", message={"role": "user", "content": content}, **more)


def part(  # noqa: PLR0917  # a table's row reads better without names
    uuid: str,
    parent: str | None,
    at: float,
    message: str,
    block: dict[str, Any],
    usage: list[int],
    **more: Any,
) -> dict[str, Any]:
    """A line of an answer; usage is input, cache read, cache creation, output."""
    names = (
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
    )
    said = {
        "id": message,
        "role": "assistant",
        "model": "opus",
        "content": [block],
        "stop_reason": more.pop("stop", None),
    }
    counts = (
        {"usage": dict(zip(names, usage, strict=True)) | {"service_tier": "standard"}}
        if usage
        else {}
    )
    return line(
        uuid, parent, at, "assistant", requestId=f"r-{message}", message=said | counts, **more
    )


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def tool(call: str, name: str = "Read") -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call,
        "name": name,
        "input": {"file_path": "/home/somebody/project/x.py"},
    }


def result(uuid: str, parent: str, at: float, call: str, said: str, **more: Any) -> dict[str, Any]:
    return user(
        uuid, parent, at, [{"type": "tool_result", "tool_use_id": call, "content": said}], **more
    )


MAIN: list[dict[str, Any]] = [
    {"type": "summary", "summary": "words about the session", "leafUuid": "z"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    user("u1", None, 0, "p" * 80),
    # One answer in three lines: usage at the stream's start, and twice the final one.
    part(
        "a1",
        "u1",
        4,
        "m1",
        {"type": "thinking", "thinking": "t" * 40, "signature": "s"},
        [10, 900, 110, 2],
    ),
    part("a2", "a1", 5, "m1", tool("c1"), [10, 900, 110, 60], stop="tool_use"),
    part("a3", "a2", 6, "m1", tool("c2", "Grep"), [10, 900, 110, 60], stop="tool_use"),
    # Results of parallel tools hang on their own lines: the second is no descendant of the first.
    result("t1", "a2", 7, "c1", "r" * 400),
    result("t2", "a3", 9, "c2", "g" * 200),
    line("n1", "t2", 9.5, "attachment", attachment={"type": "note", "text": "w" * 20}),
    part("b1", "n1", 14, "m2", text("done"), [5, 1_020, 175, 8], stop="end_turn"),
]


def shape(session: Session) -> list[list[tuple[str, int]]]:
    return [[(segment.role, segment.tokens) for segment in turn.add] for turn in session.turns]


def test_lines_with_one_message_id_are_one_call_and_parallel_results_are_all_sent(
    tmp_path: Path,
) -> None:
    (session,), summary = imported(tmp_path, {"main.jsonl": jsonl(*MAIN)})
    assert summary.format == "claude_code"
    # Naive sums over lines would count the first call three times.
    assert (summary.calls, lengths(session), [turn.output for turn in session.turns]) == (
        2,
        [1_020, 1_200],
        [60, 8],
    )
    (lead, asked), (*said, first, second, note) = session.turns[0].add, session.turns[1].add
    assert (lead.tokens, asked.tokens) == (1_000, 20)
    assert {segment.role for segment in said} == {"assistant"}
    assert sum(segment.tokens for segment in said) == 60
    assert [(segment.role, segment.tokens) for segment in (first, second, note)] == [
        ("tool", 74),
        ("tool", 37),
        ("user", 9),
    ]
    assert [(turn.wait, turn.wait_s, turn.recorded) for turn in session.turns] == [
        (None, 0.0, Recorded(api_s=6.0, cached=900)),
        ("tool", 3.5, Recorded(api_s=4.5, cached=1_020, start_s=9.5)),
    ]


def test_output_tokens_of_the_streams_start_give_way_to_the_length_of_the_answer(
    tmp_path: Path,
) -> None:
    lines = [
        user("u1", None, 0, "hello"),
        part("a1", "u1", 4, "m1", text("w" * 400), [10, 0, 0, 2]),
    ]
    (session,), summary = imported(tmp_path, {"main.jsonl": jsonl(*lines)})
    assert session.turns[0].output == 100
    assert (
        (
            "output tokens of a call: estimated from its answer, since the log has only the "
            "start of the stream"
        ),
        1,
        None,
    ) in summary.estimated


def sidechain(at: float, agent: str | None) -> list[dict[str, Any]]:
    more: dict[str, Any] = {"isSidechain": True} | ({} if agent is None else {"agentId": agent})
    return [
        user(f"{agent}-u", None, at, "task " * 10, **more),
        part(
            f"{agent}-a",
            f"{agent}-u",
            at + 5,
            f"{agent}-m1",
            tool("k1"),
            [0, 0, 500, 30],
            stop="tool_use",
            **more,
        ),
        result(f"{agent}-t", f"{agent}-a", at + 6, "k1", "r" * 80, **more),
        part(
            f"{agent}-b",
            f"{agent}-t",
            at + 20,
            f"{agent}-m2",
            text("found"),
            [0, 500, 60, 10],
            stop="end_turn",
            **more,
        ),
    ]


PARENT: list[dict[str, Any]] = [
    user("u1", None, 0, "p" * 80),
    part("a1", "u1", 4, "m1", tool("c1", "Task"), [0, 0, 1_000, 40], stop="tool_use"),
    result(
        "t1",
        "a1",
        26,
        "c1",
        "found",
        toolUseResult={"status": "completed", "agentId": "a7", "totalTokens": 1},
    ),
    part("b1", "t1", 30, "m2", text("done"), [0, 1_000, 100, 8], stop="end_turn"),
]


def assert_joined(sessions: list[Session]) -> None:
    parent, child = sessions
    assert (parent.workload, child.workload) == ("claude_code", "claude_code-subagent")
    assert [turn.spawn for turn in parent.turns] == [(child.session,), ()]
    assert [turn.after for turn in parent.turns] == [(), (TurnRef(session=child.session, turn=-1),)]
    # Started 1 s behind the parent's call, over at 25:
    # the parent waited one more second for its result.
    assert [(turn.wait, turn.wait_s) for turn in child.turns] == [(None, 1.0), ("tool", 1.0)]
    assert (parent.turns[1].wait, parent.turns[1].wait_s) == ("tool", 1.0)
    assert (lengths(parent), lengths(child)) == ([1_000, 1_100], [500, 560])


def test_sub_agents_are_found_in_files_of_their_own_or_inside(tmp_path: Path) -> None:
    own, beside, inside = (
        jsonl(*sidechain(5, "a7")),
        jsonl(*sidechain(5, "a7")),
        jsonl(*PARENT[:2], *sidechain(5, None), *PARENT[2:]),
    )
    of_its_own = {
        "p/main.jsonl": jsonl(*PARENT),
        "p/main/subagents/agent-a7.jsonl": own,
        "p/main/subagents/agent-a7.meta.json": "{}",
    }
    for number, files in enumerate(
        [
            of_its_own,
            {"p/main.jsonl": jsonl(*PARENT), "p/agent-a7.jsonl": beside},
            {"p/main.jsonl": inside},
        ]
    ):
        sessions, summary = imported(tmp_path / str(number), files)
        assert summary.spawned == 1
        assert_joined(sessions)


def test_a_resumed_session_repeats_calls_that_are_counted_once(tmp_path: Path) -> None:
    again = [{**record, "sessionId": "later"} for record in MAIN[2:]]
    more = [
        user("u9", "b1", 100, "go on"),
        part("c1", "u9", 110, "m9", text("ok"), [0, 1_200, 60, 5], stop="end_turn"),
    ]
    sessions, summary = imported(
        tmp_path, {"a.jsonl": jsonl(*MAIN), "b.jsonl": jsonl(*again, *more)}
    )
    assert [lengths(session) for session in sessions] == [[1_020, 1_200], [1_260]]
    assert ("a call repeated from an earlier file (a resumed session)", 2, None) in summary.dropped
    # The new call sends what the old ones sent, under the same names.
    assert [segment.key for segment in sessions[1].turns[0].add][1:4] == [
        segment.key for turn in sessions[0].turns for segment in turn.add
    ][1:4]


def test_a_message_that_was_taken_back_leaves_its_branch(tmp_path: Path) -> None:
    more = [
        user("v1", "a3", 50, "v" * 40),
        part("d1", "v1", 55, "m3", text("other"), [0, 1_020, 190, 4], stop="end_turn"),
    ]
    (session,), _ = imported(tmp_path, {"main.jsonl": jsonl(*MAIN, *more)})
    assert (session.turns[2].keep, [role for role, _ in shape(session)[2]]) == (None, ["user"])
    assert lengths(session) == [1_020, 1_200, 1_210]


def test_behind_a_compaction_only_the_lead_and_the_summary_are_left(tmp_path: Path) -> None:
    more = [
        line(
            "k",
            None,
            60,
            "system",
            subtype="compact_boundary",
            logicalParentUuid="b1",
            compactMetadata={"trigger": "auto", "preTokens": 1_200},
        ),
        user("s", "k", 60, "s" * 160, isCompactSummary=True),
        user("u2", "s", 70, "next"),
        part("e1", "u2", 75, "m4", text("ok"), [0, 0, 1_050, 3], stop="end_turn"),
    ]
    (session,), _ = imported(tmp_path, {"main.jsonl": jsonl(*MAIN, *more)})
    assert (session.turns[2].keep, shape(session)[2]) == (1, [("user", 49), ("user", 1)])
    assert lengths(session)[2] == 1_050


def test_errors_shown_to_the_user_are_no_calls_and_unknown_lines_are_counted(
    tmp_path: Path,
) -> None:
    synthetic = part("e1", "b1", 20, "m3", text("API Error"), [0, 0, 0, 0])
    synthetic["message"]["model"] = "<synthetic>"
    (session,), summary = imported(
        tmp_path,
        {
            "main.jsonl": jsonl(
                *MAIN, synthetic, {"type": "brand-new"}, line("x", "b1", 21, "brand-new")
            )
        },
    )
    assert len(session.turns) == 2
    assert summary.dropped == (
        ("an answer not from a model (an error shown to the user)", 1, None),
    )
    assert [(what, count) for what, count, _ in summary.odd] == [("a line of an unknown type", 2)]
