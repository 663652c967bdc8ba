import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.live.body import Sampling, chat, completion, prompt_hash

MESSAGES = b'[{"role":"user","content":"hi \xc3\xa9"}]'
TOOLS = b'[{"type":"function"}]'


def asked(pieces: tuple[bytes, ...]) -> object:
    return json.loads(b"".join(pieces))


def test_a_chat_asks_for_exactly_so_many_tokens_and_for_their_ids() -> None:
    assert asked(chat(MESSAGES, tools=TOOLS, sampling=Sampling(model="M", max_tokens=64))) == {
        "model": "M",
        "max_tokens": 64,
        "temperature": 0.0,
        "ignore_eos": True,
        "min_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "tools": [{"type": "function"}],
        "messages": [{"role": "user", "content": "hi é"}],
    }


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (
            Sampling(model="M", max_tokens=8, is_forced=False, counting="running_usage", seed=3, temperature=0.5),
            {
                "model": "M",
                "max_tokens": 8,
                "temperature": 0.5,
                "seed": 3,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
        ),
        (
            Sampling(model="M", max_tokens=8, is_forced=False, is_streamed=False, counting="usage"),
            {"model": "M", "max_tokens": 8, "temperature": 0.0},
        ),
        (
            Sampling(model="M", max_tokens=8, is_forced=False, is_streamed=False, counting="usage", extra={"temperature": 1, "user": "u"}),
            {"model": "M", "max_tokens": 8, "temperature": 1, "user": "u"},
        ),
    ],
)
def test_options_say_what_is_asked_and_extra_fields_win(sampling: Sampling, expected: dict[str, object]) -> None:
    assert asked(chat(b"[]", sampling=sampling)) == expected | {"messages": []}


@pytest.mark.parametrize(("prompt", "expected"), [(b'"once upon"', "once upon"), ([10, 20, 30], [10, 20, 30])])
def test_a_completion_takes_text_or_token_ids(prompt: bytes | list[int], expected: object) -> None:
    body = asked(completion(prompt, sampling=Sampling(model="M", max_tokens=1)))
    assert isinstance(body, dict)
    assert body["prompt"] == expected


def test_the_prompt_is_passed_on_and_not_copied() -> None:
    assert chat(MESSAGES, sampling=Sampling(model="M", max_tokens=1))[2] is MESSAGES


@given(
    pieces=st.lists(st.none() | st.binary(max_size=4), min_size=2, max_size=2),
    others=st.lists(st.none() | st.binary(max_size=4), min_size=2, max_size=2),
)
def test_equal_hashes_mean_equal_pieces(pieces: list[bytes | None], others: list[bytes | None]) -> None:
    same = [piece or b"" for piece in pieces] == [piece or b"" for piece in others]
    assert (prompt_hash(*pieces) == prompt_hash(*others)) == same
