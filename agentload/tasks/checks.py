"""Grade an answer by the checks of a trace's turn or of the user's own items."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, assert_never

from agentload.errors import UsageError
from agentload.model.check import Check, Equals, Has, JsonSchema, Length, Matches, Number, ToolCall
from agentload.tasks.item import Grade
from agentload.tasks.parts import schema
from agentload.tasks.parts.json_text import json_in

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


def grade(check: Check, answer: str, *, tokens: int | None = None) -> Grade:
    """Grade by one check; a call of a tool is spelled as JSON of name and arguments. Without *tokens* a length counts words.

    Raises UsageError for a check that `problem` complains about.
    """
    if (what := problem(check)) is not None:
        raise UsageError(what)
    is_right = _passes(check, answer, tokens)
    return Grade(score=float(is_right), right=is_right)


def grade_all(checks: Sequence[Check], answer: str, *, tokens: int | None = None) -> Grade:
    """Grade by several checks: the score is the share that pass, right are all."""
    passed = [grade(check, answer, tokens=tokens).right for check in checks]
    return Grade(score=sum(passed) / len(passed), right=all(passed))


def problem(check: Check) -> str | None:
    """Say why a check cannot be graded; None where it can."""
    match check:
        case Matches(pattern=pattern):
            try:
                re.compile(pattern)
            except re.error as error:
                return f"'{pattern}' is no regular expression: {error}"
        case JsonSchema(schema=text):
            keyword = schema.unknown(json.loads(text))
            return None if keyword is None else f"the keyword '{keyword}' of a JSON Schema is not checked"
        case _:
            pass
    return None


def _passes(check: Check, answer: str, tokens: int | None) -> bool:
    match check:
        case Has(text=text):
            return text in answer
        case Matches(pattern=pattern):
            return re.search(pattern, answer) is not None
        case Number(value=value, tolerance=tolerance):
            numbers = _NUMBER.findall(answer)
            return bool(numbers) and abs(float(numbers[-1].replace(",", "")) - value) <= tolerance
        case JsonSchema(schema=text):
            found = json_in(answer)
            return (found is not None or answer.strip() == "null") and schema.accepts(json.loads(text), found)
        case ToolCall(name=name, arguments=arguments):
            return _calls(json_in(answer), name, json.loads(arguments))
        case Equals(text=text):
            return answer.strip() == text.strip()
        case Length(at_least=low, at_most=high):
            count = len(answer.split()) if tokens is None else tokens
            return low <= count and (high is None or count <= high)
        case _:
            assert_never(check)


def _calls(said: object, name: str, arguments: dict[str, object]) -> bool:
    if not isinstance(said, dict) or said.get("name") != name:
        return False
    passed = said.get("arguments")
    return isinstance(passed, dict) and all(key in passed and passed[key] == value for key, value in arguments.items())
