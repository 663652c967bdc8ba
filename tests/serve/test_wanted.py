import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.serve.content import content, token_ids
from agentload.serve.refusal import RefusedError
from agentload.serve.wanted import Wanted, chat, completion
from tests.serve.recorded_lines import text

LENGTH = 8192
HELLO = [{"role": "user", "content": "hello there"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]


def asked(**fields: Any) -> Wanted:
    return chat(json.dumps({"messages": HELLO, **fields}).encode(), max_model_len=LENGTH)


def refused(read: Callable[..., Wanted], body: bytes) -> dict[str, Any]:
    with pytest.raises(RefusedError) as caught:
        read(body, max_model_len=LENGTH)
    error: dict[str, Any] = json.loads(caught.value.refusal.body())["error"]
    return error


def test_what_a_client_does_not_say_stays_at_vllms_defaults() -> None:
    assert asked() == Wanted(face="chat", model=None, messages=tuple(HELLO))
    assert completion(b'{"prompt":"a b"}', max_model_len=LENGTH) == Wanted(face="completions", model=None, prompt="a b", max_tokens=16)


def test_everything_a_replay_asks_for_is_read() -> None:
    stream = {"include_usage": True, "continuous_usage_stats": True}
    found = asked(
        model="m", stream=True, stream_options=stream, max_tokens=9, max_completion_tokens=7, min_tokens=3, ignore_eos=True, stop="END",
        logprobs=True, top_logprobs=2, return_token_ids=True, tools=TOOLS, temperature=0,
    )  # fmt: skip
    assert found == Wanted(
        face="chat", model="m", messages=tuple(HELLO), tools=tuple(TOOLS), tool_choice="auto", stream=True, include_usage=True,
        continuous_usage=True, max_tokens=7, min_tokens=3, ignore_eos=True, stop=("END",), top_logprobs=2, token_ids=True,
    )  # fmt: skip


@pytest.mark.parametrize(("prompt", "expected"), [("a b", "a b"), (["a b"], "a b"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2))])
def test_a_completion_takes_text_or_token_ids_alone_or_in_a_list_of_one(prompt: object, expected: object) -> None:
    assert completion(json.dumps({"prompt": prompt}).encode(), max_model_len=LENGTH).prompt == expected


@pytest.mark.parametrize(
    ("choice", "expected"), [(None, None), ("none", "none"), ("required", "required"), ({"function": {"name": "look"}}, "look")]
)
def test_a_tool_choice_is_a_mode_or_the_name_of_a_tool(choice: object, expected: str | None) -> None:
    assert asked(tools=TOOLS, tool_choice=choice).tool_choice == expected


def test_unreadable_json_is_refused_with_its_place_as_recorded() -> None:
    theirs = json.loads(text("error_badjson.json"))["error"]
    assert refused(chat, b'{"model":,}') == theirs


@pytest.mark.parametrize("recorded", ["badparam", "maxtokens"])
def test_a_bad_length_is_refused_as_recorded(recorded: str) -> None:
    theirs = json.loads(text(f"error_{recorded}.json"))["error"]
    length = {"badparam": -1, "maxtokens": 9000}[recorded]
    assert refused(chat, json.dumps({"messages": HELLO, "max_tokens": length}).encode()) == theirs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": "many"}, "body.max_tokens"),
        ({"max_tokens": [1]}, "body.max_tokens"),
        ({"messages": "hello"}, "body.messages"),
        ({"messages": ["hello"]}, "body.messages.0"),
        ({"model": 3}, "body.model"),
        ({"stop": [1]}, "body.stop"),
        ({"stop": ""}, None),
        ({"stop": [""]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": "all"}, "body.stream_options"),
        ({"n": 2}, "n"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "all"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "other"}}}, "tool_choice"),
    ],
)
def test_a_field_that_cannot_be_served_is_named(fields: dict[str, Any], param: str | None) -> None:
    body = json.dumps({"messages": HELLO, **fields}).encode()
    if param is None:
        assert chat(body, max_model_len=LENGTH).stop == ()
    else:
        error = refused(chat, body)
        assert (error["param"], error["code"]) == (param, 400)


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"\xff", b'{"messages":'])
def test_a_body_that_is_no_object_is_refused_not_crashed_on(body: bytes) -> None:
    assert refused(chat, body)["type"] == "Bad Request"


@pytest.mark.parametrize("prompt", [None, "", [], ["a", "b"], [[1], [2]], [1, "a"], [-1], [1.5], {"a": 1}])
def test_a_prompt_that_is_not_one_prompt_is_refused(prompt: object) -> None:
    assert refused(completion, json.dumps({"prompt": prompt}).encode())["code"] == 400


def test_missing_messages_are_named() -> None:
    assert refused(chat, b"{}")["param"] == "body.messages"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9000) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "function", "name", "type"]), inner, max_size=3)
    ),
    max_leaves=6,
)
LENGTHS = ["max_tokens", "max_completion_tokens", "min_tokens", "thinking_token_budget", "n", "logprobs", "top_logprobs"]
OTHERS = ["messages", "prompt", "model", "stream", "stream_options", "stop", "tools", "tool_choice", "ignore_eos", "return_token_ids"]
FIELDS = st.sampled_from([*LENGTHS, *OTHERS])


@given(st.dictionaries(FIELDS, JSON, max_size=6), st.sampled_from([chat, completion]))
def test_whatever_json_comes_is_served_or_refused_never_crashed_on(fields: dict[str, object], read: Callable[..., Wanted]) -> None:
    try:
        found = read(json.dumps({"messages": [{"role": "user", "content": "a"}], "prompt": "a", **fields}).encode(), max_model_len=LENGTH)
    except RefusedError:
        return
    assert content(found, block=16).tokens == len(token_ids(found))
