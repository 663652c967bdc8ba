"""Formats that hold words: AIPerf's DAG files, OpenAI's batches, vLLM's conversations."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentload.errors import TraceError, UsageError
from agentload.exporters import aiperf_dag, catalog, mooncake, openai_batch, vllm_multi_turn
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef
from tests.importers.importing import imported, lengths


def segment(role: str, tokens: int, key: str) -> Segment:
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]  # a role by name


HEADER = Header(
    name="t", seed=3, prefixes={"P": (segment("system", 20, "sys"), segment("tools", 30, "tools"))}
)
GROWS = Session(
    session="a",
    workload="w",
    start_s=0.0,
    prefix="P",
    turns=(
        Turn(add=(segment("user", 10, "u"),), output=7, spawn=("b",)),
        Turn(
            add=(segment("assistant", 7, "x"), segment("tool", 12, "r")),
            output=5,
            wait="tool",
            wait_s=1.5,
            after=(TurnRef(session="b", turn=-1),),
        ),
    ),
)
CHILD = Session(
    session="b",
    workload="w",
    turns=(Turn(add=(segment("user", 9, "task"),), output=4, model="small"),),
)
CUTS = Session(
    session="c",
    workload="w",
    start_s=5.0,
    turns=(
        Turn(add=(segment("system", 20, "sys"), segment("user", 10, "u")), output=7),
        Turn(add=(segment("assistant", 7, "x"), segment("user", 6, "v")), output=5, keep=1),
    ),
)
TRACE = Trace(header=HEADER, sessions=(GROWS, CHILD, CUTS))


def words(content: object) -> int:
    return len(str(content).split())


def test_batches_hold_every_context_in_words_of_its_length() -> None:
    found = [json.loads(line) for line in openai_batch.lines(TRACE, model="m", forced="yes")]
    assert [line["custom_id"] for line in found] == ["a/0", "a/1", "b/0", "c/0", "c/1"]
    assert [line["body"]["model"] for line in found] == ["m", "m", "small", "m", "m"]
    first, second = found[0]["body"], found[1]["body"]
    assert [(message["role"], words(message["content"])) for message in first["messages"]] == [
        ("system", 20),
        ("user", 10),
    ]
    assert second["messages"][:2] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "tool"]
    assert second["messages"][2]["tool_calls"][0]["id"] == second["messages"][3]["tool_call_id"]
    assert first["tools"] == second["tools"]
    assert (first["max_tokens"], first["min_tokens"], first["ignore_eos"]) == (7, 7, True)
    # Equal keys are equal words in every session.
    assert found[3]["body"]["messages"] == first["messages"]


def test_a_batch_comes_back_with_the_lengths_and_the_sharing_of_the_trace(tmp_path: Path) -> None:
    """Drawn words have five bytes a token."""
    plain = Trace(header=HEADER, sessions=(CHILD, CUTS))
    text = b"".join(openai_batch.lines(plain))
    sessions, summary = imported(tmp_path, {"b.jsonl": text}, bytes_per_token=5)
    assert summary.format == "openai_chat"
    assert sorted(length for session in sessions for length in lengths(session)) == sorted(
        length for session in (CHILD, CUTS) for length in lengths(session)
    )
    kept = [segment.key for segment in sessions[1].turns[0].add]
    assert [segment.key for segment in sessions[2].turns[0].add][:1] == kept[:1]


def test_conversations_grow_or_begin_again(tmp_path: Path) -> None:
    found = json.loads(b"".join(vllm_multi_turn.lines(TRACE)))
    assert [conversation["id"] for conversation in found] == ["a", "b", "c", "c/1"]
    assert [
        [(message["role"], words(message["content"])) for message in conversation["messages"]]
        for conversation in found
    ] == [
        [("user", 60), ("assistant", 7), ("user", 12), ("assistant", 5)],
        [("user", 9), ("assistant", 4)],
        [("user", 30), ("assistant", 7)],
        [("user", 33), ("assistant", 5)],
    ]
    sessions, _ = imported(tmp_path, {"v.json": json.dumps(found)}, bytes_per_token=5)
    assert [lengths(session) for session in sessions] == [[60, 79], [9], [30], [33]]


def test_an_empty_trace_is_an_empty_list() -> None:
    assert json.loads(b"".join(vllm_multi_turn.lines(Trace(header=HEADER, sessions=())))) == []


def test_dags_hold_what_is_new_where_a_session_only_grows() -> None:
    grows, child, cuts = (json.loads(line) for line in aiperf_dag.lines(TRACE))
    assert grows.keys() == {"session_id", "turns"}
    assert [
        [(message["role"], words(message["content"])) for message in turn["messages"]]
        for turn in grows["turns"]
    ] == [[("system", 20), ("user", 10)], [("user", 12)]]
    assert grows["turns"][0]["spawns"] == [{"children": ["b"], "join_at": 1}]
    assert (grows["turns"][1]["delay"], grows["turns"][1]["max_tokens"]) == (1_500.0, 5)
    assert grows["turns"][1]["extra"] == {"ignore_eos": True, "min_tokens": 5}
    assert child["turns"][0]["model"] == "small"
    assert cuts["context_mode"] == "message_array_with_responses"
    assert [[message["role"] for message in turn["messages"]] for turn in cuts["turns"]] == [
        ["system", "user"],
        ["system", "assistant", "user"],
    ]


def test_literal_texts_take_the_place_of_drawn_words() -> None:
    texts = {"u": "what the user said", "r": "what the tool said"}
    found = [json.loads(line) for line in openai_batch.lines(TRACE, texts=texts)]
    assert [
        message["content"].strip()
        for message in found[1]["body"]["messages"]
        if message["role"] in {"user", "tool"}
    ] == list(texts.values())


def test_calls_that_wait_for_each_other_are_named() -> None:
    turns = (
        Turn(add=(), output=1, after=(TurnRef(session="b", turn=0),)),
        Turn(add=(), output=1, spawn=("b",)),
    )
    circle = (Session(session="a", workload="w", start_s=0.0, turns=turns), CHILD)
    with pytest.raises(TraceError, match="calls of a, b wait for each other"):
        list(mooncake.lines(Trace(header=HEADER, sessions=circle)))


def test_an_unknown_format_names_the_nearest() -> None:
    assert catalog.names() == ("aiperf-dag", "mooncake", "openai-batch", "vllm-multi-turn")
    with pytest.raises(UsageError) as caught:
        catalog.exporter("moncake")
    assert (caught.value.message, caught.value.hint) == (
        "no format 'moncake'",
        "did you mean mooncake?",
    )


def described(name: str) -> tuple[bool, tuple[str, ...]]:
    found: Any = catalog.exporter(name)
    return found.speaks, tuple(option.name for option in found.options)


def test_options_are_the_signatures() -> None:
    assert described("mooncake") == (False, ("block", "s_per_token", "sessions"))
    assert described("aiperf-dag") == (True, ("model",))
