from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentload.model.schema import MOST_NESTED, accepts, fault

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
    assert fault(schema) is None


UNSUPPORTED = "this keyword is not supported"
TYPE_NAMES = "object, array, string, integer, number, boolean, null"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#/x"}, f"$.$ref: {UNSUPPORTED}"),
        ({"properties": {"a": {"uniqueItems": True}}}, f"$.properties.a.uniqueItems: {UNSUPPORTED}"),
        ({"anyOf": [True, {"items": {"contains": {}}}]}, f"$.anyOf[1].items.contains: {UNSUPPORTED}"),
        ({"title": "x", "description": "y"}, None),
        ({"type": "objekt"}, f'$.type: "objekt" is no type: {TYPE_NAMES}'),
        ({"type": ["string", 3]}, f"$.type: 3 is no type: {TYPE_NAMES}"),
        ({"properties": ["a"]}, '$.properties: expected an object, got ["a"]'),
        ({"properties": {"a": "string"}}, ("$.properties.a: a schema is an object, true or false, "
            'not "string"')),
        ({"items": {"pattern": "("}}, ("$.items.pattern: '(' is not a regular expression: missing "
            "), unterminated subpattern at position 0")),
        ({"pattern": 4}, "$.pattern: expected a text, got 4"),
        ({"required": "a"}, '$.required: expected a list of names, got "a"'),
        ({"required": [1]}, "$.required: expected a list of names, got [1]"),
        ({"enum": "a"}, '$.enum: expected a list, got "a"'),
        ({"oneOf": []}, "$.oneOf: expected a list of schemas, got []"),
        ({"not": {"minimum": "3"}}, '$.not.minimum: expected a number, got "3"'),
        ({"exclusiveMinimum": True}, "$.exclusiveMinimum: expected a number, got true"),
        ({"minLength": -1}, "$.minLength: expected a whole number from 0, got -1"),
        ({"maxItems": 1.5}, "$.maxItems: expected a whole number from 0, got 1.5"),
    ],
)  # fmt: skip
def test_a_broken_schema_is_named_with_its_place(schema: dict[str, Any], said: str | None) -> None:
    assert fault(schema) == said


def test_a_schema_is_bounded_in_depth() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MOST_NESTED):
        schema = {"items": schema}
    assert fault(schema) is None
    assert str(fault({"items": schema})).endswith(": more than 100 schemas inside each other")
