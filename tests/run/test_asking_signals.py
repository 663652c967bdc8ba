from __future__ import annotations

import json
import math

import pytest

from agentload.ask.asker import Answered, Failed
from agentload.run.inquiry import agreement, failure, non_printing, repeated_4grams, signals


def said(text: str, *, logprobs: tuple[float, ...] | None = None, tokens: tuple[str, ...] | None = None, finish: str = "stop") -> Answered:
    return Answered(text=text, finish_reason=finish, prompt_tokens=9, output_tokens=len(text.split()), tokens=tokens, logprobs=logprobs)


def test_the_reference_is_told_without_comparison() -> None:
    assert json.loads(signals(said("so it is"), None)) == {
        "finish_reason": "stop",
        "non_printing": 0.0,
        "output_tokens": 3,
        "prompt_tokens": 9,
    }


def test_another_arm_is_told_how_far_it_agrees_in_tokens_with_the_difference_of_their_probabilities() -> None:
    mine = said("a b d", tokens=("a", " b", " d"), logprobs=(-0.1, -0.4, -3.0))
    theirs = said("a b c e", tokens=("a", " b", " c", " e"), logprobs=(-0.2, -0.2, -0.1, -0.1))
    assert json.loads(signals(mine, theirs)) == {
        "agreement": 2,
        "agreement_of": 4,
        "agreement_unit": "token",
        "finish_reason": "stop",
        "length_ratio": 0.75,
        "logprob_delta": 0.15,
        "nan_logprobs": 0,
        "non_printing": 0.0,
        "output_tokens": 3,
        "prompt_tokens": 9,
    }


def test_without_tokens_words_are_compared() -> None:
    seen = json.loads(signals(said("a b"), said("a c")))
    assert (seen["agreement"], seen["agreement_unit"], seen["agreement_of"]) == (1, "word", 2)
    for mine, theirs in ((("a", " b"), None), (None, ("a", " c"))):  # tokens of one side alone compare nothing
        assert json.loads(signals(said("a b", tokens=mine), said("a c", tokens=theirs)))["agreement_unit"] == "word"


def test_garbage_and_broken_probabilities_are_noticed() -> None:
    seen = json.loads(signals(said("! " * 40, logprobs=(math.nan, -1.0), finish="length"), None))
    assert (seen["garbage"], seen["nan_logprobs"], seen["repeated_4grams"]) == ("repetition: nothing but '! '", 1, 0.973)


def test_a_failure_is_told_with_its_status() -> None:
    assert [json.loads(failure(each)) for each in (Failed(error="x", http_status=500), Failed(error="y"))] == [
        {"error": "x", "http_status": 500},
        {"error": "y"},
    ]


@pytest.mark.parametrize(("words", "share"), [("a b c", None), ("a b c d", 0.0), ("a b a b a b", 0.3333), ("a a a a a a a a", 0.8)])
def test_the_share_of_four_words_that_came_before(words: str, share: float | None) -> None:
    assert repeated_4grams(words.split()) == share


@pytest.mark.parametrize(("text", "share"), [("", None), ("a\n\tb", 0.0), ("a\x00\ufffdb", 0.5)])
def test_the_share_of_signs_that_no_text_shows(text: str, share: float | None) -> None:
    assert non_printing(text) == share


@pytest.mark.parametrize(("one", "other", "same"), [("abc", "abd", 2), ("abc", "abc", 3), ("", "a", 0), ("ab", "abc", 2)])
def test_agreement_counts_from_the_start(one: str, other: str, same: int) -> None:
    assert agreement(one, other) == same
