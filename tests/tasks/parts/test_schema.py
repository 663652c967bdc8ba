from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentload.tasks.parts.schema import accepts, unknown

NAMES = st.sampled_from(("a", "b", "c"))
LEAVES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from((1.0, 0.5, "x", "xy", "", "a1"))
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(("object", "array", "string", "integer", "number", "boolean", "null"))


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.booleans() | st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(LEAVES, min_size=1, max_size=3),
            "const": LEAVES,
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(("^a", "x$", r"\d")),
            "anyOf": some,
            "allOf": some,
            "oneOf": some,
            "not": inner,
        },
    )


SCHEMAS = schemas(schemas(st.booleans()))


@given(SCHEMAS, VALUES)
# any JSON
def test_values_are_accepted_as_a_full_validator_accepts_them(schema: Any, value: Any) -> None:  # noqa: ANN401
    assert accepts(schema, value) is Draft202012Validator(schema).is_valid(value)
    assert unknown(schema) is None


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"$ref": "#/x"}, "$ref"),
        ({"properties": {"a": {"uniqueItems": True}}}, "uniqueItems"),
        ({"anyOf": [{"items": {"contains": {}}}]}, "contains"),
        ({"title": "x", "description": "y"}, None),
    ],
)
def test_what_is_not_checked_is_named(schema: dict[str, Any], keyword: str | None) -> None:
    assert unknown(schema) == keyword
