from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.serve.script import Script, ScriptPart, script
from agentload.serve.wanted import Wanted
from tests.serve.arms import arm

HELLO = Wanted(
    face="chat",
    model=None,
    messages=({"role": "user", "content": "tell me a long story about the sea"},),
)
FORCED = replace(HELLO, max_tokens=40, ignore_eos=True)


def written(asked: Wanted, *, prompt_tokens: int = 8, seed: int = 0) -> Script:
    return script(asked, arm=arm(), prompt_tokens=prompt_tokens, seed=seed)


def test_a_forced_answer_has_exactly_as_many_tokens_as_asked() -> None:
    found = written(FORCED)
    assert (len(found.pieces), found.finish) == (40, "length")
    assert len("".join(found.pieces).split()) == 40


def test_an_answer_of_its_own_length_stops_and_a_short_limit_cuts_it() -> None:
    free = written(HELLO)
    assert free.finish == "stop"
    cut = written(replace(HELLO, max_tokens=5))
    assert (cut.pieces, cut.finish) == (free.pieces[:5], "length")


def test_without_a_limit_the_context_is_one() -> None:
    assert len(written(replace(HELLO, ignore_eos=True), prompt_tokens=8000).pieces) == 192


def test_an_answer_is_at_least_as_long_as_asked() -> None:
    assert len(written(replace(HELLO, min_tokens=300)).pieces) == 300


def test_equal_prompts_and_seeds_give_equal_answers_and_others_do_not() -> None:
    assert written(FORCED).pieces == written(FORCED).pieces
    assert written(FORCED).pieces != written(FORCED, seed=1).pieces
    assert (
        written(FORCED).pieces
        != written(replace(FORCED, messages=({"role": "user", "content": "else"},))).pieces
    )


@given(st.integers(0, 39), st.integers(1, 3))
def test_a_stop_text_ends_the_answer_where_it_first_begins(index: int, words: int) -> None:
    text = "".join(written(FORCED).pieces)
    stop = "".join(written(FORCED).pieces[index : index + words]).strip()
    found = written(replace(FORCED, stop=(stop, "never said")))
    assert "".join(found.pieces) == text[: text.index(stop)]
    assert (found.finish, found.stop_reason) == ("stop", stop)


def test_a_stop_text_counts_only_from_the_least_length_on() -> None:
    pieces = written(FORCED).pieces
    stop = "".join(pieces[3:5])
    assert written(replace(FORCED, stop=(stop,), min_tokens=10)).stop_reason is None
    later = "".join(pieces[20:22])
    assert len(written(replace(FORCED, stop=(later,), min_tokens=10)).pieces) == 22


def test_thinking_takes_its_budget_out_of_the_answer_and_leaves_a_token() -> None:
    found = written(replace(FORCED, thinking_tokens=12))
    assert [(part.kind, len(part.pieces)) for part in found.parts] == [
        ("reasoning", 12),
        ("content", 28),
    ]
    assert written(replace(FORCED, thinking_tokens=99)).reasoning_tokens == 39


def test_completions_are_answered_from_text_and_from_token_ids() -> None:
    of_text = replace(FORCED, face="completions", messages=(), prompt="a b c")
    of_ids = replace(of_text, prompt=(1, 2, 3))
    assert len(written(of_text).pieces) == len(written(of_ids).pieces) == 40
    assert written(of_text).pieces != written(of_ids).pieces


def test_the_model_finds_what_the_prompt_says() -> None:
    asked = Wanted(
        face="chat",
        model=None,
        messages=(
            {"role": "system", "content": "The build token is ZX-4417."},
            {"role": "user", "content": "What is the build token?"},
        ),
    )
    assert written(asked) == Script(
        parts=(ScriptPart(kind="content", pieces=("ZX-4417",)),), finish="stop"
    )


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}


def calling(question: str, **fields: Any) -> Script:
    return written(
        Wanted(
            face="chat",
            model=None,
            messages=({"role": "user", "content": question},),
            tools=(CLOCK, WEATHER),
            **fields,
        )
    )


@pytest.mark.parametrize(
    ("question", "choice", "name", "arguments"),
    [
        (
            "The city is Ulm. The days are 3. Use the weather tool.",
            "auto",
            "weather",
            '{"city": "Ulm", "days": "3"}',
        ),
        ("call `weather` now", "auto", "weather", '{"city": "", "days": 0}'),
        ("what time is it", "required", "clock", "{}"),
        ("what time is it", "weather", "weather", '{"city": "", "days": 0}'),
    ],
)
def test_a_tool_is_called_where_it_is_named_or_required(
    question: str, choice: str, name: str, arguments: str
) -> None:
    found = calling(question, tool_choice=choice)
    ((part),) = found.parts
    assert (part.kind, part.name, part.text, found.finish) == (
        "call",
        name,
        arguments,
        "tool_calls",
    )


@pytest.mark.parametrize(
    "fields",
    [{"tool_choice": "none"}, {"tool_choice": "auto", "ignore_eos": True, "max_tokens": 5}],
)
def test_no_tool_is_called_where_none_may_or_the_length_is_forced(fields: dict[str, Any]) -> None:
    assert calling("use the weather tool", **fields).parts[0].kind == "content"


def test_words_that_happen_to_be_names_of_tools_call_nothing() -> None:
    assert (
        calling("the clock of the weather station", tool_choice="auto").parts[0].kind == "content"
    )


def test_a_call_that_is_cut_ends_for_its_length() -> None:
    found = calling("call `weather`", tool_choice="auto", max_tokens=2)
    assert (len(found.pieces), found.finish) == (2, "length")
