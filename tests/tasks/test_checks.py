from __future__ import annotations

import pytest

from agentload.errors import UsageError
from agentload.model.check import Check, Equals, Has, JsonSchema, Length, Matches, Number, ToolCall
from agentload.tasks import Grade
from agentload.tasks.parts.grading import grade, grade_all, problem

SCHEMA = JsonSchema(schema='{"type": "object", "required": ["a"]}')
CALL = ToolCall(name="send", arguments='{"to": "Ann"}')


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (Has(text="ZX-4417"), "it was ZX-4417.", "it was zx-4417."),
        (Matches(pattern=r"^v\d+$"), "v12", "v12a"),
        (Number(value=1200.5, tolerance=0.5), "12 or 1,201", "1,201 or 12"),
        (Number(value=-3), "-3", "none"),
        (SCHEMA, '```json\n{"a": 1}\n```', '{"b": 1}'),
        (JsonSchema(schema='{"type": "null"}'), "null", ""),
        (CALL, '{"name": "send", "arguments": {"to": "Ann", "cc": "Bob"}}', '{"name": "send", "arguments": {"to": "Bob"}}'),
        (CALL, '{"name": "send", "arguments": {"to": "Ann"}}', "I would call send."),
        (Equals(text="ready"), " ready\n", "ready."),
        (Length(at_least=2, at_most=3), "one two", "one two three four"),
        (Length(at_least=2), "one two three four", "one"),
    ],
)
def test_each_kind_of_check_tells_right_from_wrong(check: Check, right: str, wrong: str) -> None:
    assert [grade(check, answer) for answer in (right, wrong)] == [Grade(score=1.0, right=True), Grade(score=0.0, right=False)]


def test_a_length_is_of_tokens_where_they_are_known() -> None:
    assert grade(Length(at_least=5, at_most=5), "one two", tokens=5).right


def test_of_several_checks_the_score_is_the_share_that_pass() -> None:
    checks = (Has(text="a"), Has(text="b"))
    assert [grade_all(checks, answer) for answer in ("ab", "a")] == [Grade(score=1.0, right=True), Grade(score=0.5, right=False)]


def test_a_check_that_cannot_be_graded_is_refused() -> None:
    assert problem(Matches(pattern="(")) == "'(' is not a regular expression: missing ), unterminated subpattern at position 0"
    with pytest.raises(UsageError, match="'\\$ref' is not supported"):
        grade(JsonSchema(schema='{"$ref": "#/x"}'), "{}")
