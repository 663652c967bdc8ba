"""What a turn's answer is checked for: one dataclass a kind, named as in the trace file."""

import json
from dataclasses import dataclass

from agentload.model.schema import fault, wrong_pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Has:
    """The answer contains this text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The answer contains a match of this regular expression."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """The last number of the answer lies within a tolerance of this value."""

    value: float
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """The answer is JSON that this schema (JSON text) accepts."""

    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The answer calls this tool with at least these arguments (JSON text of an object)."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equals:
    """The answer, stripped, is exactly this text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
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
