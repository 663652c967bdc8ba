import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.model.trace import image_tokens
from agentload.prompts import count, images
from agentload.serve.refusal import RefusedError
from agentload.serve.wanted import Wanted, chat, completion, content, token_id, token_ids
from tests.serve.recorded_lines import text

LENGTH = 8192
HELLO = [{"role": "user", "content": "hello there"}]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
BLOCK = 4
WORDS = st.lists(st.sampled_from(["a", "bb", "ccc", "dd"]), max_size=30)


def asked(**fields: Any) -> Wanted:
    return chat(json.dumps({"messages": HELLO, **fields}).encode(), max_model_len=LENGTH)


def refused(read: Callable[..., Wanted], body: bytes) -> dict[str, Any]:
    with pytest.raises(RefusedError) as caught:
        read(body, max_model_len=LENGTH)
    error: dict[str, Any] = json.loads(caught.value.body())["error"]
    return error


def test_what_a_client_does_not_say_stays_at_vllms_defaults() -> None:
    assert asked() == Wanted(face="chat", model=None, messages=tuple(HELLO))
    assert completion(b'{"prompt":"a b"}', max_model_len=LENGTH) == Wanted(
        face="completions", model=None, prompt="a b", max_tokens=16
    )


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


@pytest.mark.parametrize(
    ("prompt", "expected"), [("a b", "a b"), (["a b"], "a b"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2))]
)
def test_a_completion_takes_text_or_token_ids_alone_or_in_a_list_of_one(
    prompt: object, expected: object
) -> None:
    assert (
        completion(json.dumps({"prompt": prompt}).encode(), max_model_len=LENGTH).prompt == expected
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("none", "none"),
        ("required", "required"),
        ({"function": {"name": "look"}}, "look"),
    ],
)
def test_a_tool_choice_is_a_mode_or_the_name_of_a_tool(
    choice: object, expected: str | None
) -> None:
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
        ({"stop": [1]}, "body.stop.str"),
        ({"stop": ""}, None),
        ({"stop": [""]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {}}, None),
        ({"stream": "maybe"}, "body.stream"),
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
        assert chat(body, max_model_len=LENGTH) == asked()
    else:
        error = refused(chat, body)
        assert (error["param"], error["code"]) == (param, 400)


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"\xff", b'{"messages":'])
def test_a_body_that_is_no_object_is_refused_not_crashed_on(body: bytes) -> None:
    assert refused(chat, body)["type"] == "Bad Request"


@pytest.mark.parametrize(
    "prompt", [None, "", [], ["a", "b"], [[1], [2]], [1, "a"], [-1], [1.5], {"a": 1}]
)
def test_a_prompt_that_is_not_one_prompt_is_refused(prompt: object) -> None:
    assert refused(completion, json.dumps({"prompt": prompt}).encode())["code"] == 400


def test_every_fault_of_a_body_is_told_in_pydantics_words() -> None:
    error = refused(chat, b'{"messages":[],"max_tokens":"many","stop":3}')
    assert error == {
        "message": "3 validation errors:\n"
        "  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a "
        "valid integer,"
        " unable to parse string as an integer', 'input': 'many'}\n"
        "  {'type': 'string_type', 'loc': 'body.stop.str', 'msg': 'Input should be a valid string',"
        " 'input': '3'}\n"
        "  {'type': 'list_type', 'loc': 'body.stop.list[str]', 'msg': 'Input should be a "
        "valid list',"
        " 'input': '3'}",
        "type": "Bad Request",
        "param": "body.max_tokens",
        "code": 400,
    }


def test_fields_that_contradict_each_other_are_one_fault_of_the_body() -> None:
    error = refused(completion, b'{"model":"m"}')
    assert error == {
        "message": "1 validation error:\n  {'type': 'value_error', 'loc': "
        "'body', 'msg': 'Value error,"
        " Either prompt or prompt_embeds must be provided and non-empty.', 'input': '<dict "
        "of 1 items>',"
        " 'ctx': {'error': 'Either prompt or prompt_embeds must be provided and non-empty.'}}",
        "type": "Bad Request",
        "param": "prompt",
        "code": 400,
    }


def test_missing_messages_are_named() -> None:
    assert refused(chat, b"{}")["param"] == "body.messages"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9000) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "function", "name", "type"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
LENGTHS = [
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "thinking_token_budget",
    "n",
    "logprobs",
    "top_logprobs",
]
OTHERS = [
    "messages",
    "prompt",
    "model",
    "stream",
    "stream_options",
    "stop",
    "tools",
    "tool_choice",
    "ignore_eos",
    "return_token_ids",
]
FIELDS = st.sampled_from([*LENGTHS, *OTHERS])


@settings(max_examples=settings().max_examples // 4)
@given(st.dictionaries(FIELDS, JSON, max_size=6), st.sampled_from([chat, completion]))
def test_whatever_json_comes_is_served_or_refused_never_crashed_on(
    fields: dict[str, object], read: Callable[..., Wanted]
) -> None:
    try:
        found = read(
            json.dumps(
                {"messages": [{"role": "user", "content": "a"}], "prompt": "a", **fields}
            ).encode(),
            max_model_len=LENGTH,
        )
    except RefusedError:
        return
    assert content(found, block=16).tokens == len(token_ids(found))


def chat_of(*contents: Any) -> Wanted:
    return Wanted(
        face="chat",
        model=None,
        messages=tuple({"role": "user", "content": content} for content in contents),
    )


def shared_tokens(one: Wanted, other: Wanted) -> int:
    """Count what a prefix cache would share: the whole blocks of the common run prefix."""
    total = 0
    for mine, theirs in zip(
        content(one, block=BLOCK).runs, content(other, block=BLOCK).runs, strict=False
    ):
        if mine != theirs:
            break
        total += mine[1]
    return total // BLOCK * BLOCK


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_runs_are_blocks_and_count_what_the_tokenizer_counts(messages: list[list[str]]) -> None:
    asked = chat_of(*(" ".join(words) for words in messages))
    found = content(asked, block=BLOCK)
    assert (
        found.tokens
        == sum(tokens for _, tokens in found.runs)
        == count.count(asked.messages, ())
        == len(token_ids(asked))
    )
    assert all(tokens == BLOCK for _, tokens in found.runs[:-1])


@given(WORDS, WORDS, WORDS)
def test_two_prompts_share_the_whole_blocks_of_their_common_words(
    start: list[str], mine: list[str], theirs: list[str]
) -> None:
    one, other = start + mine, start + theirs
    common = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    assert (
        shared_tokens(chat_of(" ".join(one)), chat_of(" ".join(other))) == common // BLOCK * BLOCK
    )


def test_where_a_message_ends_does_not_matter_only_the_words_do() -> None:
    assert content(chat_of("a b", "c d e"), block=BLOCK) == content(
        chat_of("a b c d e"), block=BLOCK
    )


def test_an_image_is_one_run_of_its_own_and_the_text_after_it_meets_the_next_block() -> None:
    url = images.data_url(1, "picture", (64, 32))
    size = image_tokens((64, 32))
    found = content(
        chat_of(
            [
                {"type": "text", "text": "a b c"},
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "d " * 9},
            ]
        ),
        block=8,
    )
    assert size == 6
    assert [tokens for _, tokens in found.runs] == [3, 6, 7, 2]
    assert found.tokens == 18


def test_equal_images_have_equal_identities_and_others_do_not() -> None:
    def run(seed: int) -> tuple[str, int]:
        return content(
            chat_of(
                [{"type": "image_url", "image_url": {"url": images.data_url(seed, "p", (28, 28))}}]
            ),
            block=BLOCK,
        ).runs[0]

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize(("prompt", "tokens"), [("a b c", 3), ((5, 6, 7, 8, 9), 5)])
def test_completions_take_text_and_ids(prompt: str | tuple[int, ...], tokens: int) -> None:
    asked = Wanted(face="completions", model=None, prompt=prompt)
    assert content(asked, block=BLOCK).tokens == tokens == len(token_ids(asked))


def test_token_ids_are_the_same_in_prompts_and_answers() -> None:
    assert token_ids(chat_of("alpha beta")) == [token_id("alpha"), token_id("beta")]


@pytest.mark.parametrize("depth", [200, 900, 5_000, 100_000])
@pytest.mark.parametrize("read", [chat, completion])
def test_a_body_nested_without_end_is_refused_or_read_and_ends_nothing(
    read: Callable[..., Wanted], depth: int
) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    parts = [
        b'"prompt":"a b"',
        b'"messages":[{"role":"user","content":"a","x":%b}]' % nested,
        b'"tools":[{"function":%b}]' % nested,
        b'"x":%b' % nested,
    ]
    for part in parts:
        try:
            found = read(
                b"{%b,%b}"
                % (
                    parts[0]
                    if read is completion
                    else b'"messages":[{"role":"user","content":"a"}]',
                    part,
                ),
                max_model_len=LENGTH,
            )
        except RefusedError as error:
            assert error.status == 400  # noqa: PT017  # both are right
        else:
            if read is chat:
                assert len(token_ids(found)) >= 1


@pytest.mark.parametrize("body", [b'{"messages":[],"seed":' + b"9" * 5_000 + b"}", b"[" * 100_000])
def test_a_body_that_no_parser_can_read_is_refused(body: bytes) -> None:
    assert refused(chat, body)["code"] == 400
