"""Mooncake traces, and AIPerf's extensions of them."""

from pathlib import Path

import pytest

from agentload.errors import TraceError
from agentload.model.trace import Recorded, Segment, Session, Turn
from tests.importers.importing import ideal, ideal_of, imported, jsonl, lengths, sent, tokens

LINES = jsonl(
    {"timestamp": 0, "input_length": 10, "output_length": 3, "hash_ids": [0, 1, 7]},
    {"timestamp": 1500, "input_length": 12, "output_length": 1, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 9, "output_length": 0, "hash_ids": [5, 6, 8]},
)


def segment(tokens: int, key: str | tuple[int, int], role: str = "user") -> Segment:
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]  # a role by name


def test_a_line_is_a_session_and_consecutive_ids_are_one_segment(tmp_path: Path) -> None:
    """No server can be asked for no tokens: an empty answer
    becomes one of a token, and the recorded length stands beside.
    """
    nothing = Turn(
        add=(segment(8, (5, 2)), segment(1, (8, 1))), output=1, recorded=Recorded(output=0)
    )
    sessions, summary = imported(tmp_path, {"m.jsonl": LINES}, block=4)
    assert sessions == [
        Session(
            session="s0",
            workload="mooncake",
            start_s=0.0,
            turns=(Turn(add=(segment(8, (0, 2)), segment(2, (7, 1))), output=3),),
        ),
        Session(
            session="s1",
            workload="mooncake",
            start_s=1.5,
            turns=(Turn(add=(segment(12, (0, 3)),), output=1),),
        ),
        Session(session="s2", workload="mooncake", start_s=1.5, turns=(nothing,)),
    ]
    assert (
        summary.format,
        summary.sessions,
        summary.calls,
        summary.prompt_tokens,
        summary.output_tokens,
    ) == ("mooncake", 3, 3, 31, 5)
    # By hand: the second request finds blocks 0 and 1.
    assert (summary.ideal_source, summary.ideal_import, ideal_of(sessions, 4)) == (
        8 / 31,
        8 / 31,
        8 / 31,
    )
    assert summary.licence == "the public Mooncake traces are Apache-2.0 (kvcache-ai/Mooncake)"


def test_lines_of_a_session_hold_what_is_new_and_their_delay(tmp_path: Path) -> None:
    """As `aiperf synthesize agentic-code` writes them:
    later lines have a delay in the place of a time.
    """
    text = jsonl(
        {
            "session_id": "a",
            "timestamp": 0.0,
            "input_length": 9,
            "output_length": 5,
            "hash_ids": [0, 1, 2],
            "group_id": 4,
        },
        {
            "session_id": "b",
            "timestamp": 500.0,
            "input_length": 8,
            "output_length": 1,
            "hash_ids": [0, 1],
        },
        {
            "session_id": "a",
            "delay": 2450.5,
            "input_length": 6,
            "output_length": 2,
            "hash_ids": [8, 9],
        },
    )
    (first, second), summary = imported(tmp_path, {"m.jsonl": text}, block=4)
    assert first.turns == (
        Turn(add=(segment(9, (0, 3)),), output=5),
        Turn(
            add=(segment(5, "s0.a0", "assistant"), segment(6, (8, 2))),
            output=2,
            wait="user",
            wait_s=2.4505,
            recorded=Recorded(start_s=2.4505),
        ),
    )
    assert (second.start_s, lengths(first), lengths(second)) == (0.5, [9, 20], [8])
    assert summary.ideal_source == summary.ideal_import == (8 + 8) / 37


@pytest.mark.parametrize("history", ["full", "delta"])
def test_lines_that_hold_the_whole_context_keep_what_they_share(
    tmp_path: Path, history: str
) -> None:
    """By the option, or by what the line itself says."""
    mode = {} if history == "full" else {"context_mode": "message_array_with_responses"}
    text = jsonl(
        mode
        | {
            "session_id": 1,
            "timestamp": 0,
            "input_length": 9,
            "output_length": 5,
            "hash_ids": [0, 1, 2],
        },
        mode
        | {
            "session_id": 1,
            "timestamp": 3000,
            "input_length": 16,
            "output_length": 1,
            "hash_ids": [0, 1, 3, 4],
        },
        mode
        | {
            "session_id": 1,
            "timestamp": 4000,
            "input_length": 5,
            "output_length": 1,
            "hash_ids": [0, 5],
        },
    )
    (session,), summary = imported(tmp_path, {"m.jsonl": text}, block=4, history=history)
    assert [(turn.keep, turn.add, turn.wait_s) for turn in session.turns] == [
        (None, (segment(4, (0, 1)), segment(4, (1, 1)), segment(1, (2, 1))), 0.0),
        (2, (segment(8, (3, 2)),), 3.0),
        (1, (segment(1, (5, 1)),), 1.0),
    ]
    assert lengths(session) == [9, 16, 5]
    assert summary.ideal_source == summary.ideal_import == (8 + 4) / 30
    assert summary.estimated == (
        (
            "waits include the service time of the previous answer, which is not in the source",
            2,
            None,
        ),
    )


def test_ids_that_cover_only_a_part_leave_a_rest_that_nobody_shares(tmp_path: Path) -> None:
    text = jsonl(
        *[
            {"timestamp": at, "input_length": 11, "output_length": 1, "hash_ids": [0]}
            for at in (0, 1)
        ]
    )
    sessions, summary = imported(tmp_path, {"m.jsonl": text}, block=4)
    assert [session.turns[0].add for session in sessions] == [
        (segment(4, (0, 1)), segment(7, "s0.0")),
        (segment(4, (0, 1)), segment(7, "s1.0")),
    ]
    assert summary.ideal_source == summary.ideal_import == 4 / 22
    assert [what for what, _, _ in summary.odd] == [
        "block ids cover only part of the prompt (block=4)"
    ]


def test_large_ids_may_be_hashes_of_content_and_are_hashed_again(tmp_path: Path) -> None:
    text = jsonl(
        *[
            {
                "timestamp": at,
                "input_length": 4,
                "output_length": 1,
                "hash_ids": [12_345_678_901_234_567],
            }
            for at in (0, 1)
        ]
    )
    sessions, summary = imported(tmp_path, {"m.jsonl": text}, block=4)
    keys = {session.turns[0].add[0].key for session in sessions}
    assert len(keys) == 1
    assert keys != {(12_345_678_901_234_567, 1)}
    assert summary.ideal_import == 0.5


def test_text_messages_and_payloads_are_measured_and_named(tmp_path: Path) -> None:
    system, asked = {"role": "system", "content": "s" * 40}, {"role": "user", "content": "u" * 8}
    text = jsonl(
        {
            "session_id": "m",
            "timestamp": 0,
            "messages": [system, asked],
            "tools": [{"type": "function"}],
            "output_length": 6,
        },
        {
            "session_id": "m",
            "delay": 500,
            "messages": [system, asked, {"role": "assistant", "content": "a" * 24}, asked],
            "output_length": 2,
        },
        {"session_id": "t", "timestamp": 10, "text_input": "u" * 8, "output_length": 3},
        {"session_id": "t", "timestamp": 2010, "text_input": "v" * 12, "output_length": 3},
        {"timestamp": 20, "payload": {"messages": [system], "max_tokens": 9}, "output_length": 9},
    )
    (spoken, written, verbatim), _ = imported(tmp_path, {"m.jsonl": text})
    assert [
        [(segment.role, segment.tokens) for segment in context] for context in sent(spoken)
    ] == [
        [("system", 10), ("tools", 6), ("user", 2)],
        [("system", 10), ("user", 2), ("assistant", 6), ("user", 2)],
    ]
    assert [(turn.wait, turn.wait_s) for turn in spoken.turns] == [(None, 0.0), ("user", 0.5)]
    assert [
        [(segment.role, segment.tokens) for segment in context] for context in sent(written)
    ] == [[("user", 2)], [("user", 2), ("assistant", 3), ("user", 3)]]
    # Equal words in equal roles have equal names wherever they stand.
    assert sent(written)[0][0] == sent(spoken)[0][2]
    assert sent(verbatim)[0] == (sent(spoken)[0][0],)


def test_stamps_on_a_grid_are_noticed_and_can_be_spread(tmp_path: Path) -> None:
    text = jsonl(
        *[
            {"timestamp": 3000 * (number // 3), "input_length": 4, "output_length": 1}
            for number in range(12)
        ]
    )
    kept, summary = imported(tmp_path, {"m.jsonl": text})
    assert summary.grid_s == 3.0
    assert [session.start_s for session in kept][:4] == [0.0, 0.0, 0.0, 3.0]
    moved, summary = imported(tmp_path, {"m.jsonl": text}, grid="spread")
    assert [session.start_s for session in moved][:4] == [0.0, 1.0, 2.0, 3.0]
    assert [turn.recorded for session in moved[:2] for turn in session.turns] == [
        None,
        Recorded(start_s=0.0),
    ]


def test_lines_out_of_order_start_when_they_say(tmp_path: Path) -> None:
    text = jsonl(
        *[{"timestamp": at, "input_length": at, "output_length": 1} for at in (7000, 2000, 5000)]
    )
    sessions, _ = imported(tmp_path, {"m.jsonl": text})
    assert [(session.start_s, lengths(session)) for session in sessions] == [
        (0.0, [2000]),
        (3.0, [5000]),
        (5.0, [7000]),
    ]


@pytest.mark.parametrize(
    ("history", "contexts"),
    [
        ("delta", [[("user", 2)], [("user", 2), ("assistant", 3), ("user", 5)]]),
        ("full", [[("user", 2)], [("user", 5)]]),
    ],
)
def test_a_line_with_a_length_in_a_session_of_texts_has_its_tokens(
    tmp_path: Path, history: str, contexts: list[list[tuple[str, int]]]
) -> None:
    text = jsonl(
        {"session_id": "t", "timestamp": 0, "text_input": "u" * 8, "output_length": 3},
        {"session_id": "t", "timestamp": 9, "input_length": 5, "output_length": 3},
    )
    (session,), _ = imported(tmp_path, {"m.jsonl": text}, history=history)
    assert [
        [(segment.role, segment.tokens) for segment in context] for context in sent(session)
    ] == contexts


def test_an_answer_of_unknown_length_has_a_token_and_is_counted(tmp_path: Path) -> None:
    line = {"timestamp": 0, "input_length": 4}
    (session,), summary = imported(tmp_path, {"m.jsonl": jsonl(line)}, format="mooncake")
    assert [turn.output for turn in session.turns] == [1]
    assert ("output_length is missing: 1 token assumed", 1, None) in summary.estimated


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"timestamp": 0, "output_length": 1, "input_length": -1}, "a negative length or time"),
        ({"timestamp": -5, "output_length": 1, "input_length": 1}, "a negative length or time"),
        (
            {"timestamp": 0, "output_length": 1},
            "neither input_length nor text_input, messages or payload",
        ),
        (
            {"timestamp": "noon", "output_length": 1, "input_length": 1},
            "timestamp: Expected `float | null`",
        ),
    ],
)
def test_what_cannot_be_a_request_is_named(
    tmp_path: Path, line: dict[str, object], what: str
) -> None:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, {"m.jsonl": LINES + jsonl(line)}, "mooncake")
    assert caught.value.message == f"{tmp_path / 'm.jsonl'}:4: {what}"
    sessions, summary = imported(tmp_path, {"m.jsonl": LINES + jsonl(line)}, "mooncake", "lenient")
    assert (len(sessions), summary.malformed) == (3, ((what, 1, f"{tmp_path / 'm.jsonl'}:4"),))


def test_the_slow_count_agrees(tmp_path: Path) -> None:
    """The oracle of these tests, on the source's own ids."""
    said = [([0, 1, 7], 10), ([0, 1, 2], 12), ([5, 6, 8], 9)]
    calls: list[list[tuple[object, int]]] = [
        [(ids[at // 4], at % 4) for at in range(length)] for ids, length in said
    ]
    sessions, _ = imported(tmp_path, {"m.jsonl": LINES}, block=4)
    assert calls == [list(tokens(sent(session)[0], 4)) for session in sessions]
    assert ideal(calls, 4) == 8 / 31
