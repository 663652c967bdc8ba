"""What is made of an answer, and of one that never came."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from agentload.ask.asker import Answered, Failed
from agentload.model.rows import AnswerRow
from agentload.run.inquiry import (
    FAILURES,
    Eval,
    Inquiry,
    agreement,
    answer_row,
    failure,
    non_printing,
    repeated_4grams,
    request_id,
    signals,
)
from agentload.run.questions import Generated, Question, asking
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.study.stored import Notes
from agentload.tasks import Grade

ASKED = Generated(asking=asking(tasks=["needle"], contexts=[4096], depths=1, items=1, repetitions=1, seed=0))
STUDY = Ask(servers=Live(endpoints="e"))
EVALUATION = Eval(run="r", study=STUDY, asked=ASKED, endpoints=(), database=Path("x.duckdb"), notes=Notes())
FAILED, ANSWERED = Failed(error="x"), Answered(text="x", finish_reason=None)


@pytest.mark.parametrize(
    ("replies", "dead"),
    [
        ([("a", FAILED)] * (FAILURES - 1), None),
        ([("a", FAILED)] * FAILURES, "a"),
        ([("a", FAILED)] * (FAILURES - 1) + [("a", ANSWERED)] + [("a", FAILED)] * (FAILURES - 1), None),
        ([("a", FAILED), ("b", FAILED)] * (FAILURES - 1), None),  # each arm counts for itself
        ([("a", FAILED), ("b", ANSWERED)] * FAILURES, "a"),
    ],
)
def test_an_arm_that_fails_so_many_times_in_a_row_ends_the_leg(replies: list[tuple[str, Answered | Failed]], dead: str | None) -> None:
    stops = asyncio.Event()
    inquiry = Inquiry(EVALUATION, stops=stops, listener=lambda *_: None)
    for arm, reply in replies:
        inquiry._watch(arm, reply)
    assert (inquiry.dead, stops.is_set(), FAILURES) == (dead, dead is not None, 16)


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


QUESTION = Question(task="needle", context=4096, depth=0.5, number=7, repetition=1, item="s0-d00-0007")


def test_an_answer_is_kept_with_its_grade_and_a_failure_without_one() -> None:
    row = AnswerRow(
        run_id="r",
        arm="b",
        task="needle",
        item="s0-d00-0007",
        context_tokens=4096,
        depth=0.5,
        repetition=1,
        score=0.25,
        right=False,
        answer="no",
        request_id=request_id("r", QUESTION, "b"),
        signals='{"agreement": 0, "agreement_of": 1, "agreement_unit": "word", "length_ratio": 1.0, "non_printing": 0.0}',
    )
    grade, reference = Grade(score=0.25, right=False), Answered(text="yes", finish_reason=None)
    assert answer_row("r", QUESTION, "b", reply=Answered(text="no", finish_reason=None), grade=grade, reference=reference) == row
    failed = answer_row("r", QUESTION, "b", reply=Failed(error="x", http_status=503), grade=None, reference=reference)
    assert (failed.right, failed.score, failed.answer, failed.signals) == (None, None, None, '{"error": "x", "http_status": 503}')


def test_a_request_is_named_by_run_arm_and_question_for_ever() -> None:
    assert request_id("r", QUESTION, "b") == "29bd21b67df50de7bec9ab3de05121f2"
