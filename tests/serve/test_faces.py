import json
from dataclasses import replace
from typing import Any

import pytest

from agentload.serve.faces import DONE, ChatFace, CompletionsFace, ServedRequest
from agentload.serve.script import Script, ScriptPart
from agentload.serve.wanted import Wanted
from tests.serve.recorded_lines import event, lines, shape, text
from tests.serve.scripts import plain

PIECES = (
    "gory",
    " gre",
    "@",
    "raw",
    "UNI",
    "numerator",
    "",
    "�onents",
    "LY",
    " closed",
    " public",
    "'''",
)
STREAMED = Wanted(face="chat", model="tiny-auto", stream=True, include_usage=True)
EXCHANGE = ServedRequest(
    id="chatcmpl-b297d69da46c331f",
    created=1795177583,
    model="tiny-auto",
    fingerprint="vllm-0.32.0-d2061d1d",
    wanted=STREAMED,
    script=plain(PIECES, finish="length"),
    prompt_tokens=19,
)
# The recorded server ran without --enable-prompt-tokens-details;
# ours always tells the cached tokens.
CACHED = ',"prompt_tokens_details":{"cached_tokens":0}'
COMPLETION_PIECES = ("jor", "help", "ec", " callable", "AL")
COMPLETION_EXCHANGE = ServedRequest(
    id="cmpl-8eec9fd029f9a8da",
    created=1795177585,
    model="tiny-auto",
    fingerprint="vllm-0.32.0-d2061d1d",
    wanted=Wanted(
        face="completions",
        model="tiny-auto",
        prompt=(10, 20, 30, 40, 50),
        stream=True,
        include_usage=True,
        token_ids=True,
    ),
    script=plain(COMPLETION_PIECES, finish="length"),
    prompt_tokens=5,
    prompt_ids=(10, 20, 30, 40, 50),
)
SILENT = replace(
    COMPLETION_EXCHANGE,
    wanted=replace(COMPLETION_EXCHANGE.wanted, token_ids=False),
    prompt_ids=None,
)


def sent(events: bytes) -> list[str]:
    return [line for line in events.decode().split("\n\n") if line]


def test_a_plain_stream_is_equal_to_the_recorded_one_to_the_byte() -> None:
    face = ChatFace(EXCHANGE)
    role, first, last, usage = lines("chat.sse")
    assert sent(face.opening()) == [role]
    assert sent(face.tokens(0, 1)) == [first]
    assert sent(face.tokens(11, 12)) == [last]
    assert sent(b"".join(face.closing(0))) == [
        usage.replace('"completion_tokens":12', f'"completion_tokens":12{CACHED}'),
        "data: [DONE]",
    ]


def test_without_the_usage_chunk_the_last_token_carries_the_fingerprint() -> None:
    face = ChatFace(replace(EXCHANGE, wanted=replace(STREAMED, include_usage=False)))
    assert event(face.tokens(11, 12))["system_fingerprint"] == "vllm-0.32.0-d2061d1d"
    assert "system_fingerprint" not in event(face.tokens(10, 11))
    assert face.closing(0) == (DONE,)


def test_tokens_that_had_to_wait_ride_in_one_chunk() -> None:
    assert event(ChatFace(EXCHANGE).tokens(1, 4))["choices"][0]["delta"] == {"content": " gre@raw"}


def test_ids_log_probabilities_and_running_usage_have_the_recorded_shape() -> None:
    wanted = replace(STREAMED, continuous_usage=True, token_ids=True, top_logprobs=2)
    pieces = ("gory", " gre", "@", "raw", "UNI", "numerator")
    script = replace(
        plain(pieces, finish="length"),
        listed=tuple(((piece, -0.1), (" other", -2.0)) for piece in pieces),
    )
    face = ChatFace(replace(EXCHANGE, wanted=wanted, script=script, prompt_ids=(3, 1517)))
    role, first, last, _ = map(event, lines("chat_token_ids.sse"))
    for ours, theirs in (
        (face.opening(), role),
        (face.tokens(0, 1), first),
        (face.tokens(5, 6), last),
    ):
        assert json.dumps(shape(event(ours))) == json.dumps(shape(theirs))
    assert event(face.tokens(5, 6))["usage"] == last["usage"]


def test_an_answer_in_one_piece_has_the_recorded_shape() -> None:
    whole = json.loads(ChatFace(replace(EXCHANGE, wanted=replace(STREAMED, stream=False))).whole(7))
    theirs = json.loads(text("chat.json"))
    assert whole["usage"].pop("prompt_tokens_details") == {"cached_tokens": 7}
    theirs["usage"].pop("prompt_tokens_details")
    assert json.dumps(shape(whole)) == json.dumps(shape(theirs))
    assert whole["choices"][0]["message"]["content"] == "".join(PIECES)


CALL = Script(
    parts=(
        ScriptPart(kind="reasoning", pieces=("Let", " me")),
        ScriptPart(kind="call", pieces=("", '{"city":', ' "Ulm"}'), name="weather"),
        ScriptPart(kind="call", pieces=("{}",), name="clock"),
    ),
    finish="tool_calls",
)


def joined(face: ChatFace, total: int) -> dict[str, Any]:
    """Put the deltas of a stream together as clients do."""
    out: dict[str, Any] = {"reasoning": "", "calls": {}}
    for index in range(total):
        delta = event(face.tokens(index, index + 1))["choices"][0]["delta"]
        out["reasoning"] += delta.get("reasoning", "")
        for call in delta.get("tool_calls", []):
            mine = out["calls"].setdefault(call["index"], {"name": "", "arguments": "", "id": ""})
            mine["id"] += call.get("id", "")
            mine["name"] += call["function"].get("name", "")
            mine["arguments"] += call["function"]["arguments"]
    return out


def test_streamed_tool_calls_add_up_to_those_of_an_answer_in_one_piece() -> None:
    face = ChatFace(replace(EXCHANGE, script=CALL))
    message = json.loads(face.whole(0))["choices"][0]["message"]
    streamed = joined(face, 6)
    assert streamed["reasoning"] == message["reasoning"] == "Let me"
    assert [
        (call["id"], call["name"], call["arguments"]) for call in streamed["calls"].values()
    ] == [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message["tool_calls"]
    ]
    assert [call["name"] for call in streamed["calls"].values()] == ["weather", "clock"]
    assert message["content"] is None


def test_merged_tokens_of_several_parts_keep_their_places() -> None:
    delta = event(ChatFace(replace(EXCHANGE, script=CALL)).tokens(1, 6))["choices"][0]["delta"]
    assert delta["reasoning"] == " me"
    assert [(call["index"], call["function"]) for call in delta["tool_calls"]] == [
        (0, {"name": "weather", "arguments": '{"city": "Ulm"}'}),
        (1, {"name": "clock", "arguments": "{}"}),
    ]


@pytest.mark.parametrize(
    ("choice", "finish"), [("auto", "tool_calls"), ("required", "tool_calls"), ("weather", "stop")]
)
def test_a_call_ends_with_stop_only_where_the_client_named_the_tool(
    choice: str, finish: str
) -> None:
    face = ChatFace(replace(EXCHANGE, script=CALL, wanted=replace(STREAMED, tool_choice=choice)))
    assert event(face.tokens(5, 6))["choices"][0]["finish_reason"] == finish


def test_thinking_tokens_are_counted_apart() -> None:
    face = ChatFace(replace(EXCHANGE, script=CALL))
    usage = event(face.closing(3)[0])["usage"]
    assert usage == {
        "prompt_tokens": 19,
        "total_tokens": 25,
        "completion_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_a_stream_with_token_ids_is_the_recorded_one_but_for_the_ids() -> None:
    face = CompletionsFace(COMPLETION_EXCHANGE)
    first, _, last, usage = map(event, lines("completion.sse"))
    for ours, theirs in ((event(face.tokens(0, 1)), first), (event(face.tokens(4, 5)), last)):
        theirs["choices"][0]["token_ids"] = ours["choices"][0]["token_ids"]
        assert json.dumps(ours) == json.dumps(theirs)
    ours = event(face.closing(0)[0])
    assert ours["usage"].pop("prompt_tokens_details") == {"cached_tokens": 0}
    assert json.dumps(ours) == json.dumps(usage)


def test_a_completion_opens_with_its_first_token() -> None:
    assert CompletionsFace(COMPLETION_EXCHANGE).opening() == b""


def test_the_fast_path_says_what_the_slow_one_says() -> None:
    with_ids, without = CompletionsFace(COMPLETION_EXCHANGE), CompletionsFace(SILENT)
    for first, stop in ((0, 1), (1, 3), (4, 5)):
        slow = event(with_ids.tokens(first, stop))
        slow["choices"][0]["token_ids"] = slow["choices"][0]["prompt_token_ids"] = None
        assert json.dumps(event(without.tokens(first, stop))) == json.dumps(slow)


def test_log_probabilities_are_listed_by_token_with_their_offsets() -> None:
    script = replace(
        SILENT.script,
        listed=tuple(((piece, -0.1), (" other", -2.0)) for piece in COMPLETION_PIECES),
    )
    face = CompletionsFace(
        replace(SILENT, wanted=replace(SILENT.wanted, top_logprobs=2), script=script)
    )
    found = event(face.tokens(1, 3))["choices"][0]["logprobs"]
    assert found["text_offset"] == [3, 7]
    assert found["tokens"] == ["help", "ec"]
    assert [list(top) for top in found["top_logprobs"]] == [["help", " other"], ["ec", " other"]]
    assert all(
        max(top.values()) == value
        for top, value in zip(found["top_logprobs"], found["token_logprobs"], strict=True)
    )


def test_an_answer_in_one_piece_holds_all_tokens_and_counts() -> None:
    whole = json.loads(
        CompletionsFace(replace(SILENT, wanted=replace(SILENT.wanted, stream=False))).whole(2)
    )
    assert whole["choices"][0]["text"] == "jorhelpec callableAL"
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert shape(whole["usage"]["completion_tokens"]) == "int"
