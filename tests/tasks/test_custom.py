from __future__ import annotations

import pytest

from agentload.errors import UsageError
from agentload.tasks import Item
from agentload.tasks.parts.custom import EXAMPLE, parse

ASKED = {"role": "user", "content": "Which build failed?"}


def test_an_item_is_messages_and_a_grader() -> None:
    item = Item(messages=(ASKED,), wanted=(), output_tokens=512)
    (found,) = parse([EXAMPLE, ""], name="f")
    assert (found.name, found.task, found.context, found.item) == ("q1", "own", 1024, item)
    assert (found.grade("It is ZX-4417.").right, found.grade("None did.").right) == (True, False)


def test_names_tasks_and_lengths_may_be_given_or_follow_from_the_line() -> None:
    long = "w " * 20_000
    lines = (
        (
            '{"messages": [{}], "grader": [{"has": "b"}, {"number": 3}], "task": "mine", '
            '"context": 3000, "output": 9}'
        ),
        f'{{"messages": [{{"role": "user", "content": "{long}"}}], "grader": {{"has": "b"}}}}',
    )
    first, second = parse(lines, name="f")
    assert (first.name, first.task, first.context, first.item.output_tokens) == (
        "1",
        "mine",
        3000,
        9,
    )
    assert [first.grade(said).score for said in ("b 3", "b 4", "c 4")] == [1.0, 0.5, 0.0]
    assert (second.name, second.context) == ("2", 16_384)  # 40,000 signs are some 10,000 tokens


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["{"], "f:1: Input data was truncated"),
        (["", '{"messages": []}'], "f:2: Object missing required field `grader`"),
        (['{"messages": [], "grader": {"has": "x"}}'], "f:1: an item needs messages"),
        (['{"messages": [{}], "grader": []}'], "f:1: an item needs a grader"),
        (
            ['{"messages": [{}], "grader": {}}'],
            "f:1: a check has exactly one kind, this one has none",
        ),
        (
            ['{"messages": [{}], "grader": {"matches": "("}}'],
            "f:1: '\\(' is not a regular expression",
        ),
        (
            ['{"messages": [{}], "grader": {"has": "x"}, "answer": 1}'],
            "f:1: Object contains unknown field `answer`",
        ),
        ([EXAMPLE, EXAMPLE], "f: two items of 'own' are called 'q1'"),
        ([], "f: it has no items"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines: list[str], what: str) -> None:
    with pytest.raises(UsageError, match=f"^{what}"):
        parse(lines, name="f")
