"""Tasks that people know are read as their authors publish them, and graded as they grade."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.errors import UsageError
from agentload.tasks import texts
from agentload.tasks.known import Format, aime25, gpqa, math500, parse
from agentload.tasks.known.boxes import final_box, is_equal

AIME = "\n".join(
    json.dumps(line)
    for line in (
        {"id": "0", "problem": "How many primes are below 20?", "answer": "8"},
        {"question": "What is 7 squared?", "answer": 49},
    )
)
MATH = json.dumps(
    {
        "problem": "What is a half of three?",
        "solution": "It is $\\boxed{\\frac{3}{2}}$.",
        "answer": "\\frac{3}{2}",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    }
)
GPQA = (
    "Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n"
    'rec1,"Which gas,\nof these, is noble?",Neon,Oxygen,Chlorine,"Hydrogen, or none"\n'
    "rec2,Which is a metal?,Iron,Sulfur,Argon,Bromine\n"
)


def test_problems_of_aime_are_graded_by_their_final_number() -> None:
    first, second = parse(StringIO(AIME), name="f", form="aime25")
    assert (first.name, second.name, first.task) == ("0", "2", "aime25")
    assert "How many primes are below 20?" in texts(first.item)[0]
    right = ["So there are \\boxed{8}.", "\\boxed{9} is wrong; \\boxed{008}", "2, 3, ... hence 8."]
    wrong = ["\\boxed{9}", "8 of them, or 18", "", "\\boxed{}", "8.5", "\\boxed{-8}"]
    assert [first.grade(said).right for said in right] == [True] * 3
    assert [first.grade(said).right for said in wrong] == [False] * 6
    assert second.grade("\\boxed{49}").right


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("\\frac{3}{2}", "\\dfrac{3}{2}"),
        ("\\frac32", "\\frac{3}{2}"),
        ("3/2", "\\frac{3}{2}"),
        ("1.5", "\\frac{3}{2}"),
        ("-\\frac{1}{2}", "-0.5"),
        ("10,000", "10000"),
        ("x = 5", "5"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\frac{\\pi}{2})"),
        ("90^\\circ", "90"),
        ("50\\%", "50"),
        ("\\$18.90", "18.90"),
        ("\\text{Evelyn}", "Evelyn"),
        ("11\\sqrt2", "11\\sqrt{2}"),
        ("5.", "5"),
        ("2.0", "2"),
        ("6\\text{ cm}", "6"),
        ("1{,}000", "1000"),
    ],
)
def test_two_ways_to_write_an_expression_are_one_answer(said: str, wanted: str) -> None:
    assert is_equal(said, wanted)
    assert is_equal(wanted, said)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("(1,2)", "(2,1)"),
        ("(1,234)", "1234"),
        ("x^2", "x"),
        ("\\frac{1}{0}", "0"),
        ("1/0", "0"),
        ("1/00", "0"),
        ("9" * 5_000, "9"),
        ("", "0"),
        ("-5", "5"),
        ("12", "1"),
    ],
)
def test_other_expressions_are_other_answers(said: str, wanted: str) -> None:
    assert not is_equal(said, wanted)
    assert not is_equal(wanted, said)


@given(st.text())
def test_any_text_has_a_box_or_none_and_equals_itself(said: str) -> None:
    assert final_box(f"{said.replace('boxed', '')} \\boxed{{1}}") == "1"
    assert is_equal(said, said)
    for grade in (
        aime25.grade(said, wanted=1),
        math500.grade(said, wanted="1"),
        gpqa.grade(said, wanted="A"),
    ):
        assert grade.right == (grade.score == 1)


def test_an_answer_that_opens_boxes_without_end_is_graded_at_once() -> None:
    assert final_box("\\boxed{" * 20_000) is None
    assert final_box("\\boxed{7} then " + "\\boxed{" * 50) == "7"


def test_a_wanted_number_may_have_a_unit() -> None:
    (item,) = parse(
        StringIO('{"question": "?", "answer": "336^\\\\circ"}'), name="f", form="aime25"
    )
    assert item.grade("\\boxed{336}").right


def test_problems_of_math_are_graded_by_what_is_boxed_last() -> None:
    (item,) = parse(StringIO(MATH), name="f", form="math500")
    assert (item.name, item.task, item.context) == ("test/algebra/1.json", "math500", 16_384)
    right = "First \\boxed{2}, no: $\\boxed{\\frac{3}{2}}$."
    assert [item.grade(said).right for said in (right, "\\fbox{ 1.5 }")] == [True, True]
    wrong = ("3/2", "\\boxed{2}", "\\boxed{\\frac{3}{2}", "")
    assert [item.grade(said).right for said in wrong] == [False] * 4


def test_choices_of_gpqa_are_in_one_order_for_every_arm_and_graded_by_the_letter() -> None:
    first, second = parse(StringIO(GPQA), name="f", form="gpqa")
    (asked,) = texts(first.item)
    assert "Which gas,\nof these, is noble?" in asked
    letter = asked[asked.index(") Neon") - 1]
    others = [each for each in "ABCD" if each != letter]
    forms = (
        "The correct answer is ({})",
        "**Answer: {}**",
        "answer is {}.",
        "\\boxed{{{}}}",
        "The correct answer is $({})$",
        "\\boxed{{\\textbf{{({})}}}}",
        "the answer is option {}",
    )
    for form in forms:
        assert first.grade(form.format(letter)).right
        assert not first.grade(form.format(others[0])).right
    # The last letter that is named counts; the article is no letter.
    assert first.grade(f"The answer is ({others[0]}). No: the answer is ({letter})").right
    assert not first.grade("It is a noble gas").right
    again, _ = parse(StringIO(GPQA), name="f", form="gpqa")
    assert again.item == first.item
    assert second.name == "rec2"


def test_right_choices_stand_at_every_letter() -> None:
    rows = "".join(f"r{number},What?,right,w1,w2,w3\n" for number in range(100))
    head = GPQA.partition("\n")[0] + "\n"
    items = parse(StringIO(head + rows), name="f", form="gpqa")
    counts = [sum(item.grade(f"answer is {each}").right for item in items) for each in "ABCD"]
    assert sum(counts) == 100
    assert min(counts) > 10


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("aime25", '{"answer": "1"}', "a line has 'problem' or 'question'"),
        ("aime25", '{"problem": "?", "answer": "x"}', "is no whole number"),
        ("aime25", "", "it has no items"),
        ("math500", '{"problem": "?"}', "missing required field `answer`"),
        ("math500", f"{MATH}\n{MATH}", "two items of 'math500' are called"),
        ("gpqa", "a,b\n1,2\n", "the table lacks Correct Answer"),
        ("gpqa", GPQA.splitlines()[0] + "\nr,Which?,Iron\n", "a row lacks choices"),
    ],
)
def test_a_file_of_another_form_is_refused_with_an_example(
    form: Format, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse(StringIO(text), name="f", form=form)
    assert caught.value.hint
