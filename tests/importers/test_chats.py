"""Chats with their messages: OpenAI's, LMCache's, tau-bench's and SWE-agent's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.model.trace import Recorded, Session
from tests.importers.importing import ideal_of, imported, jsonl, lengths, sent

SYSTEM, ASKED = {"role": "system", "content": "s" * 400}, {"role": "user", "content": "u" * 80}
CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "read", "arguments": '{"path":"x"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "name": "read", "content": "r" * 200}
ANSWER = {"role": "assistant", "content": "a" * 40}
CHAT: list[dict[str, Any]] = [SYSTEM, ASKED, CALLING, RESULT, ANSWER]


def shape(session: Session) -> list[list[tuple[str, int]]]:
    return [[(segment.role, segment.tokens) for segment in turn.add] for turn in session.turns]


EXPECTED = [[("system", 100), ("user", 20)], [("assistant", 5), ("tool", 50)]]


@pytest.mark.parametrize(
    "text",
    [
        jsonl({"messages": CHAT}),
        msgspec.json.encode([{"id": "1", "messages": CHAT}]).decode(),
        jsonl(
            {
                "conversations": [
                    {"from": "system", "value": "s" * 400},
                    {"from": "human", "value": "u" * 80},
                    *CHAT[2:],
                ]
            }
        ),
    ],
    ids=["lines", "a list", "ShareGPT's names"],
)
def test_every_answer_of_a_conversation_is_a_call(tmp_path: Path, text: str) -> None:
    (session,), summary = imported(tmp_path, {"c.jsonl": text})
    assert (summary.format, shape(session), [turn.output for turn in session.turns]) == (
        "openai_chat",
        EXPECTED,
        [5, 10],
    )
    assert [turn.wait for turn in session.turns] == [None, "tool"]
    assert session.turns[1].add[1].extra == (("name", '"read"'),)


def test_a_conversation_of_which_some_messages_have_times_keeps_its_order(tmp_path: Path) -> None:
    times = (100.0, 101.0, 104.0, None, 110.0, None, 112.0)
    chat: list[dict[str, Any]] = [*CHAT, ASKED, {**ANSWER, "content": "a" * 400}]
    timed = [
        message if at is None else message | {"timestamp": at}
        for message, at in zip(chat, times, strict=True)
    ]
    (session,), _ = imported(tmp_path, {"c.jsonl": jsonl({"messages": timed})})
    assert [turn.output for turn in session.turns] == [5, 10, 100]
    assert [turn.wait_s < 60 for turn in session.turns] == [True, True, True]


def test_conversations_start_when_their_records_say_and_the_rest_is_filed(tmp_path: Path) -> None:
    one = {"messages": [*CHAT[:2], ANSWER], "created_at": 1_000.0, "completed_at": 1_007.0}
    other = {"messages": CHAT, "createdAt": "1970-01-01T00:17:40Z"}
    (first, second), summary = imported(tmp_path, {"c.jsonl": jsonl(one, other)})
    assert [first.start_s, second.start_s] == [0.0, 60.0]
    assert first.turns[0].recorded == Recorded(api_s=7.0)
    assert [turn.wait_s for turn in second.turns] == [0.0, 0.0]
    said = {what for what, *_ in summary.estimated if "conversation" in what}
    assert said == {
        "waits between the turns of a conversation: not in the source, and none are played"
    }


@pytest.mark.parametrize("timed", [0, 1])
def test_a_conversation_without_a_time_starts_with_the_last_that_has_one(
    tmp_path: Path, timed: int
) -> None:
    records = [{"messages": CHAT}, {"messages": CHAT}]
    records[timed]["created_at"] = 1_767_261_600.0  # type: ignore[assignment]
    sessions, _ = imported(tmp_path, {"c.jsonl": jsonl(*records)})
    assert [each.start_s for each in sessions] == [0.0, 0.0]


def test_a_greeting_is_part_of_the_first_prompt(tmp_path: Path) -> None:
    greeted = {"messages": [ANSWER, *CHAT[1:2], ANSWER]}
    (session,), summary = imported(tmp_path, {"c.jsonl": jsonl(greeted)})
    assert [[each.role for each in turn.add] for turn in session.turns] == [["assistant", "user"]]
    assert any("nothing was sent for" in what for what, *_ in summary.estimated)


def test_conversations_without_any_time_are_filed(tmp_path: Path) -> None:
    _, summary = imported(tmp_path, {"c.jsonl": jsonl({"messages": CHAT})})
    said = {what for what, *_ in summary.estimated}
    assert "time of a conversation: not in the source" in said


def request(messages: list[Any], at: float | None, **more: Any) -> dict[str, Any]:
    times = {} if at is None else {"startTime": at, "endTime": at + 2}
    return {"request": {"model": "m", "messages": messages, "max_tokens": 500}} | times | more


def usage(prompt: int, output: int, cached: int) -> dict[str, Any]:
    details = {
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output} | details}


LOG = [
    request(CHAT[:2], 100, response={"choices": [{"message": CALLING}]} | usage(1_000, 40, 0)),
    request([SYSTEM, {"role": "user", "content": "other"}], 100.5, response=usage(900, 9, 800)),
    request(CHAT[:4], 103, response={"choices": [{"message": ANSWER}]} | usage(1_300, 30, 1_000)),
]


def test_requests_that_go_on_with_each_other_are_one_session(tmp_path: Path) -> None:
    (first, other), summary = imported(tmp_path, {"c.jsonl": jsonl(*LOG)})
    assert shape(first) == [[("system", 833), ("user", 167)], [("assistant", 40), ("tool", 260)]]
    assert (lengths(first), lengths(other), other.start_s) == ([1_000, 1_300], [900], 0.5)
    assert first.turns[1].recorded == Recorded(api_s=2.0, cached=1_000, start_s=3.0)
    assert (first.turns[1].wait, first.turns[1].wait_s, first.turns[1].thinking) == ("tool", 1.0, 1)
    assert summary.ideal_source == summary.ideal_import == ideal_of([first, other], 16)
    assert summary.recorded_hits == 1_800 / 3_200


def test_a_session_id_wins(tmp_path: Path) -> None:
    (only,), _ = imported(
        tmp_path, {"c.jsonl": jsonl(*[record | {"session_id": 7} for record in LOG])}
    )
    assert lengths(only) == [1_000, 900, 1_300]
    # The third goes on with the first, behind the second: it keeps
    # what it shares with the second, and adds the rest anew.
    assert only.turns[2].keep == 1


def test_the_same_request_again_is_another_session(tmp_path: Path) -> None:
    sessions, _ = imported(tmp_path, {"c.jsonl": jsonl(LOG[0], LOG[0])})
    assert len(sessions) == 2


def test_a_batch_file_has_limits_and_no_times(tmp_path: Path) -> None:
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions"}
        | {"body": LOG[0]["request"]}
        for number in range(2)
    ]
    sessions, summary = imported(tmp_path, {"c.jsonl": jsonl(*lines)}, every_s=5)
    assert [(only.start_s, only.turns[0].output) for only in sessions] == [(0.0, 500), (5.0, 500)]
    assert (
        "output tokens of a call: its limit, since the answer is not in the source",
        2,
        None,
    ) in summary.estimated
    assert ("time of a request: not in the source", 2, None) in summary.estimated


def test_anthropics_blocks_and_counts_are_read(tmp_path: Path) -> None:
    """Results stand in the user's message there,
    and what was cached is counted beside the input.
    """
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "u" * 80}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "r" * 200},
                {"type": "text", "text": "v" * 40},
            ],
        },
    ]
    told = {
        "input_tokens": 10,
        "cache_read_input_tokens": 80,
        "cache_creation_input_tokens": 30,
        "output_tokens": 7,
    }
    (session,), _ = imported(
        tmp_path,
        {
            "c.jsonl": jsonl(
                {"messages": messages, "timestamp": "2026-01-01T00:00:00Z", "usage": told}
            )
        },
    )
    assert [segment.role for segment in session.turns[0].add] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert (lengths(session), session.turns[0].output, session.turns[0].recorded) == (
        [120],
        7,
        Recorded(cached=80),
    )


def test_images_have_the_size_that_their_bytes_tell(tmp_path: Path) -> None:
    png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAHAAAAA4CAIAAAA"
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": png}},
        {"type": "image_url", "image_url": {"url": "https://x/y"}},
    ]
    (session,), summary = imported(
        tmp_path, {"c.jsonl": jsonl({"messages": [{"role": "user", "content": content}, ANSWER]})}
    )
    assert [(segment.role, segment.pixels) for segment in session.turns[0].add] == [
        ("user", None),
        ("image", (112, 56)),
        ("image", (448, 448)),
    ]
    assert ("size of a linked image", 1, None) in summary.estimated


def test_lmcaches_prompts_share_what_their_texts_share(tmp_path: Path) -> None:
    opening = "You are an agent that writes programs. " * 8
    lines = [
        {
            "timestamp": 1_760_428_436_000_000,
            "session_id": "a",
            "input": opening + "first",
            "output": "o" * 40,
        },
        {
            "timestamp": 1_760_428_446_000_000,
            "session_id": "a",
            "input": opening + "first" + "x" * 300,
            "output": "o" * 8,
        },
        {
            "timestamp": 1_760_428_441_000_000,
            "session_id": "b",
            "input": opening + "second",
            "output": "",
        },
    ]
    (first, second), summary = imported(tmp_path, {"l.jsonl": jsonl(*lines)})
    assert summary.format == "lmcache"
    assert (lengths(first), lengths(second), second.start_s) == ([80, 155], [80], 5.0)
    assert [turn.output for session in (first, second) for turn in session.turns] == [10, 2, 1]
    # 312 equal bytes are 4 full blocks of 64 bytes; the session's own second prompt shares 5.
    assert summary.ideal_source == summary.ideal_import == (4 + 4) * 16 / 315
    assert first.turns[1].wait_s == 10.0


def test_tau_benchs_trajectories_are_sessions(tmp_path: Path) -> None:
    text = msgspec.json.encode(
        [
            {"task_id": number, "reward": 1.0, "info": {"task": {}}, "traj": CHAT, "trial": 0}
            for number in range(2)
        ]
    ).decode()
    sessions, summary = imported(tmp_path, {"t.json": text}, every_s=10)
    assert summary.format == "tau_bench"
    assert [shape(session) for session in sessions] == [EXPECTED, EXPECTED]
    assert [session.start_s for session in sessions] == [0.0, 10.0]
    assert summary.ideal_import == ideal_of(sessions, 16)


def test_swe_agents_answers_are_calls_but_for_the_demonstration(tmp_path: Path) -> None:
    demo = [
        {"role": "user", "content": "d" * 40, "is_demo": True},
        {"role": "assistant", "content": "e" * 40, "is_demo": True},
    ]
    history = [
        SYSTEM,
        *demo,
        ASKED,
        {"role": "assistant", "content": "b" * 40},
        {"role": "tool", "content": "o" * 80},
        ANSWER,
    ]
    steps = [{"action": "ls", "execution_time": 1.5}, {"action": "cat", "execution_time": 9.0}]
    stats = {"tokens_sent": 2 * (140 + 170), "tokens_received": 60, "api_calls": 2}
    text = msgspec.json.encode(
        {"history": history, "trajectory": steps, "info": {"model_stats": stats}}
    ).decode()
    (session,), summary = imported(tmp_path, {"x.traj": text})
    assert summary.format == "swe_agent"
    assert all(turn.recorded is None or turn.recorded.api_s is None for turn in session.turns)
    said = [what for what, *_ in summary.estimated]
    assert "times of a trajectory: not in the source, but for its tools'" in said
    assert shape(session) == [
        [("system", 200), ("user", 20), ("assistant", 20), ("user", 40)],
        [("assistant", 20), ("tool", 40)],
    ]
    assert [turn.output for turn in session.turns] == [30, 30]
    assert [(turn.wait, turn.wait_s) for turn in session.turns] == [(None, 0.0), ("tool", 1.5)]


def test_swe_agents_steps_may_hold_what_was_sent(tmp_path: Path) -> None:
    history = [
        SYSTEM,
        ASKED,
        {"role": "assistant", "content": "b" * 40},
        {"role": "tool", "content": "o" * 80},
        ANSWER,
    ]
    steps = [
        {"query": history[:2]},
        {"query": [*history[:3], {"role": "tool", "content": "old output cut"}]},
    ]
    text = msgspec.json.encode({"history": history, "trajectory": steps, "info": {}}).decode()
    (session,), _ = imported(tmp_path, {"x.traj": text})
    assert [(segment.role, segment.tokens) for segment in sent(session)[1]] == [
        ("system", 100),
        ("user", 20),
        ("assistant", 10),
        ("tool", 4),
    ]
