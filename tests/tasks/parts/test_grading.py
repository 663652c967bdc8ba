from __future__ import annotations

import json
import re
from difflib import SequenceMatcher

import pytest

from agentload.tasks import Item, catalog, prompt
from agentload.tasks.parts.grading import (
    call_text,
    holds,
    is_echo,
    is_set,
    json_in,
    string_match_all,
)
from tests.growth import least_cpu_s


# What `string_match_all` of RULER's
# scripts/eval/synthetic/constants.py gives, which multiplies by 100.
@pytest.mark.parametrize(
    ("answer", "wanted", "score"),
    [
        ("The number is 7314062.", ["7314062"], 1.0),
        ("ABCDE and xyzab", ["ABCDE", "XYZAB"], 1.0),
        ("ABCDE", ["ABCDE", "XYZAB", "QQQQQ", "RRRRR"], 0.25),
        ("", ["12"], 0.0),
        ("123", ["12"], 1.0),  # its known weakness
    ],
)
def test_ruler_scores_the_share_of_the_texts_that_are_there(
    answer: str, wanted: list[str], score: float
) -> None:
    assert string_match_all(answer, wanted) == score


@pytest.mark.parametrize(
    ("answer", "wanted", "is_there"),
    [
        ("12", "12", True),
        ("(12)", "12", True),
        ("123", "12", False),
        ("x-12", "12", False),
        ("id R-1.", "r-1", True),
    ],
)
# a table of cases
def test_a_text_counts_where_it_stands_on_its_own(answer: str, wanted: str, is_there: bool) -> None:  # noqa: FBT001
    assert holds(answer, wanted) is is_there


def test_a_set_is_all_of_them_and_no_other() -> None:
    names = re.compile(r"\b[A-Z]{5}\b")
    said = [
        is_set(answer, ("ABCDE", "XYZAB"), names)
        for answer in ("XYZAB ABCDE", "ABCDE", "ABCDE XYZAB QQQQQ")
    ]
    assert said == [True, False, False]


def test_only_a_long_run_of_the_context_is_an_echo() -> None:
    words = [f"w{number}" for number in range(100)]
    item = Item(messages=prompt(" ".join(words)), wanted=(" ".join(words[:40]),), output_tokens=50)
    runs = (words[50:73], words[50:74], ["so", *words[50:74], "!"], words[:40], words[10:60])
    assert [is_echo(" ".join(run), item) for run in runs] == [False, True, True, False, True]


# What the grader on the data set's card (openai/mrcr) gives: 0
# without the prefix, else SequenceMatcher's ratio of the rest.
@pytest.mark.parametrize(
    ("answer", "score"),
    [("markabcd", 0.75), ("mark" + "bcde", 1.0), ("abcd", 0.0), (" markbcde", 0.0), ("mark", 0.0)],
)
def test_mrcr_scores_the_likeness_of_what_follows_the_mark(answer: str, score: float) -> None:
    item = Item(messages=prompt("q"), wanted=("mark", "bcde"), output_tokens=50)
    assert catalog.task("mrcr_like-2").grade(answer, item).score == score
    assert SequenceMatcher(None, "abcd", "bcde").ratio() == 0.75


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"a": 1}', {"a": 1}), ("```json\n[1]\n```", [1]), ("```\n2\n```", 2), ("so: {}", None)],
)
def test_json_is_read_with_or_without_a_fence(text: str, value: object) -> None:
    assert json_in(text) == value


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' + "[]," * 150_000 + "1]}"])
def test_json_that_nests_or_lists_without_end_is_a_text(text: str) -> None:
    assert json_in(text) is None
    assert json.loads(call_text("f", text)) == {"name": "f", "arguments": text}


def test_no_depth_of_arguments_is_too_deep_to_be_written() -> None:
    for depth in range(900, 1_100):
        json.dumps(call_text("f", "[" * depth + "]" * depth))


def test_half_a_surrogate_pair_in_arguments_is_a_question_mark() -> None:
    assert call_text("f", '{"a":"\\ud800"}') == '{"name": "f", "arguments": {"a": "?"}}'


def test_arguments_of_many_objects_are_read_in_no_time() -> None:
    nested = '{"a":[' + ("[" * 400 + "]" * 400 + ",") * 620 + "1]}"
    assert least_cpu_s(lambda: call_text("f", nested)) < 0.02
