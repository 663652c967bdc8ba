"""What a turn's answer is checked for: one dataclass a kind, named as in the trace file."""

import json

from agentload.model.record import Record
from agentload.model.schema import fault, wrong_pattern


class Has(Record):
    """The answer contains this text."""

    text: str


class Matches(Record):
    """The answer contains a match of this regular expression."""

    pattern: str


class Number(Record):
    """The last number of the answer lies within a tolerance of this value."""

    value: float
    tolerance: float = 0.0


class JsonSchema(Record):
    """The answer is JSON that this schema (JSON text) accepts."""

    schema: str


class ToolCall(Record):
    """The answer calls this tool with at least these arguments (JSON text of an object)."""

    name: str
    arguments: str = "{}"


class Equals(Record):
    """The answer, stripped, is exactly this text."""

    text: str


class Length(Record):
    """The answer has between these many tokens."""

    at_least: int = 0
    at_most: int | None = None


Check = Has | Matches | Number | JsonSchema | ToolCall | Equals | Length


def problem(check: Check) -> str | None:
    """Return why no answer can be graded by a check; None if answers can."""
    match check:
        case Matches(pattern=pattern):
            return wrong_pattern(pattern)
        case JsonSchema(schema=text):
            found = fault(json.loads(text))
            return None if found is None else f"broken JSON Schema: {found}"
        case _:
            return None
