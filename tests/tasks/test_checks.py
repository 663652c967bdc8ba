from __future__ import annotations

import pytest

from agentload.model.check import (
    Check,
    Equals,
    Has,
    JsonSchema,
    Length,
    Matches,
    Number,
    ToolCall,
    problem,
)
from agentload.tasks import Grade
from agentload.tasks.parts.grading import call_text, grade, grade_against_record, grade_all

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
        (
            CALL,
            '{"name": "send", "arguments": {"to": "Ann", "cc": "Bob"}}',
            '{"name": "send", "arguments": {"to": "Bob"}}',
        ),
        (CALL, '{"name": "send", "arguments": {"to": "Ann"}}', "I would call send."),
        (Equals(text="ready"), " ready\n", "ready."),
        (Length(at_least=2, at_most=3), "one two", "one two three four"),
        (Length(at_least=2), "one two three four", "one"),
    ],
)
def test_each_kind_of_check_tells_right_from_wrong(check: Check, right: str, wrong: str) -> None:
    assert [grade(check, answer) for answer in (right, wrong)] == [
        Grade(score=1.0, right=True),
        Grade(score=0.0, right=False),
    ]


def test_a_length_is_of_tokens_where_they_are_known() -> None:
    assert grade(Length(at_least=5, at_most=5), "one two", tokens=5).right


def test_of_several_checks_the_score_is_the_share_that_pass() -> None:
    checks = (Has(text="a"), Has(text="b"))
    assert [grade_all(checks, answer) for answer in ("ab", "a")] == [
        Grade(score=1.0, right=True),
        Grade(score=0.5, right=False),
    ]


def test_a_check_that_cannot_be_graded_is_refused() -> None:
    assert (
        problem(Matches(pattern="("))
        == "'(' is not a regular expression: missing ), unterminated subpattern at position 0"
    )
    assert (
        problem(JsonSchema(schema='{"$ref": "#/x"}'))
        == "broken JSON Schema: $.$ref: this keyword is not supported"
    )


@pytest.mark.parametrize(
    ("recorded", "answer", "score"),
    [
        ('ls({"path":"/a","all":true})', call_text("ls", '{"all": true, "path": "/a"}'), 1.0),
        ('I look.\nls({"path":"/a"})', 'Well.\nls({"path": "/a"})', 1.0),
        ('ls({"path":"/a","all":true})', call_text("ls", '{"path": "/b", "all": true}'), 0.75),
        ('ls({"path":"/a"})', call_text("ls", '{"path": "/a", "all": true}'), 0.75),
        ("ls({})", call_text("ls", "{}"), 1.0),
        ('ls({"path":"/a"})', call_text("rm", '{"path": "/a"}'), 0.0),
        ('ls({"path":"/a"})', "I would list /a.", 0.0),
        ('ls({"path":"/a"})', call_text("ls", "no JSON"), 0.0),
        ("See src/main.py and ZX-4417.", "ZX-4417 is in src/main.py.", 1.0),
        ("See src/main.py and ZX-4417.", "It is ZX-4417", 0.5),
    ],
)
def test_an_answer_is_compared_with_the_recorded_one_by_its_call_or_its_identifiers(
    recorded: str, answer: str, score: float
) -> None:
    assert grade_against_record(answer, recorded) == Grade(score=score, right=score == 1)


def test_a_recorded_answer_without_a_call_and_identifiers_compares_nothing() -> None:
    assert grade_against_record("It is done.", "All went well, I think.") is None
