"""Validate a JSON value by a JSON Schema with the usual keywords; `unknown` reports others."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = Mapping[str, Any] | bool

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_SAYINGS: Final = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "format",
        "deprecated",
    }
)
_COMBINED: Final = frozenset({"anyOf", "allOf", "oneOf", "not"})
_BOUNDS: Final = frozenset(
    {
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
    }
)
_FORMS: Final = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "pattern"}
)
_CHECKED: Final = _FORMS | _BOUNDS | _COMBINED


def unknown(schema: Schema) -> str | None:
    """Return the first keyword that is not supported, or None."""
    if isinstance(schema, bool):
        return None
    own = next((keyword for keyword in schema if keyword not in _CHECKED | _SAYINGS), None)
    return own or next(
        (found for each in _inner(schema) if (found := unknown(each)) is not None), None
    )


def accepts(schema: Schema, value: object) -> bool:
    """Return whether the schema accepts the value."""
    if isinstance(schema, bool):
        return schema
    return (
        _is_typed(schema.get("type"), value)
        and ("enum" not in schema or any(_equal(value, each) for each in schema["enum"]))
        and ("const" not in schema or _equal(value, schema["const"]))
        and _combines(schema, value)
        and _bounds(schema, value)
        and (not isinstance(value, dict) or _object(schema, value))
        and (
            not isinstance(value, list)
            or all(accepts(schema.get("items", True), each) for each in value)
        )
    )


def _inner(schema: Mapping[str, Any]) -> Iterator[Schema]:
    yield from schema.get("properties", {}).values()
    yield from (schema[name] for name in ("items", "additionalProperties", "not") if name in schema)
    for name in ("anyOf", "allOf", "oneOf"):
        yield from schema.get(name, ())


def _is_typed(wanted: object, value: object) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, list):
        return any(_is_typed(each, value) for each in wanted)
    if isinstance(value, bool):  # Python takes a bool for a number
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(str(wanted), ()))


def _equal(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _combines(schema: Mapping[str, Any], value: object) -> bool:
    return (
        all(accepts(each, value) for each in schema.get("allOf", ()))
        and ("anyOf" not in schema or any(accepts(each, value) for each in schema["anyOf"]))
        and ("oneOf" not in schema or sum(accepts(each, value) for each in schema["oneOf"]) == 1)
        and ("not" not in schema or not accepts(schema["not"], value))
    )


def _bounds(schema: Mapping[str, Any], value: object) -> bool:
    match value:
        case bool():
            return True
        case int() | float():
            return (
                schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
                and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
            )
        case str():
            is_long = (
                schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            )
            return is_long and (
                "pattern" not in schema or re.search(schema["pattern"], value) is not None
            )
        case list():
            return bool(
                schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            )
        case _:
            return True


def _object(schema: Mapping[str, Any], value: Mapping[str, object]) -> bool:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    return all(name in value for name in schema.get("required", ())) and all(
        accepts(known.get(name, others), each) for name, each in value.items()
    )
