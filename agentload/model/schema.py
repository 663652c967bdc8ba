"""Validate a JSON value by a JSON Schema of the usual keywords; `fault` says how one is broken."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
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
_LENGTHS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_LISTS: Final = frozenset({"anyOf", "allOf", "oneOf"})
_SINGLE: Final = frozenset({"items", "additionalProperties", "not"})
MOST_NESTED: Final = 100
"""Most schemas inside each other: values are accepted by a function that calls itself."""


def fault(schema: object, *, at: str = "$", nested: int = 0) -> str | None:
    """Return where a schema is broken, and how, such as `$.items.type: …`; None if it is whole."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return f"{at}: a schema is an object, true or false, not {_shown(schema)}"
    if nested > MOST_NESTED:
        return f"{at}: more than {MOST_NESTED} schemas inside each other"
    for keyword, value in schema.items():
        if (wrong := _wrong(keyword, value)) is not None:
            return f"{at}.{keyword}: {wrong}"
        for place, inner in _inner(keyword, value):
            if (found := fault(inner, at=f"{at}.{place}", nested=nested + 1)) is not None:
                return found
    return None


def _wrong(keyword: str, value: object) -> str | None:
    """Return what is wrong with a keyword or its own value; schemas inside it are left out."""
    if keyword == "type":
        return _wrong_type(value)
    if keyword == "pattern" and isinstance(value, str):
        return wrong_pattern(value)
    if keyword in _SINGLE | _SAYINGS | {"const"}:
        return None
    if keyword not in _FORMS:
        return "this keyword is not supported"
    wanted, fits = _FORMS[keyword]
    if fits(value):
        return None
    return f"expected {wanted}, got {_shown(value)}"


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_FORMS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "pattern": ("a text", lambda value: isinstance(value, str)),
    "properties": ("an object", lambda value: isinstance(value, dict)),
    "enum": ("a list", lambda value: isinstance(value, list)),
    "required": ("a list of names", _is_names),
    **dict.fromkeys(
        _LISTS, ("a list of schemas", lambda value: isinstance(value, list) and value != [])
    ),
    **dict.fromkeys(_BOUNDS, ("a number", lambda value: _is_typed("number", value))),
    **dict.fromkeys(_LENGTHS, ("a whole number from 0", _is_length)),
}
"""What a keyword's value must be, in words, and whether one is."""


def _wrong_type(value: object) -> str | None:
    names = value if isinstance(value, list) else [value]
    wrong = next((each for each in names if not isinstance(each, str) or each not in _TYPES), None)
    if wrong is None:
        return None
    return f"{_shown(wrong)} is no type: {', '.join(_TYPES)}"


def wrong_pattern(pattern: str) -> str | None:
    """Return why a text is not a regular expression; None if it is one."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"'{pattern[:200]}' is not a regular expression: {error}"
    return None


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inner(keyword: str, value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401 # any JSON
    """Yield the schemas inside a keyword's value, each with its place."""
    if keyword == "properties":
        yield from ((f"{keyword}.{name}", inner) for name, inner in value.items())
    elif keyword in _LISTS:
        yield from ((f"{keyword}[{number}]", inner) for number, inner in enumerate(value))
    elif keyword in _SINGLE:
        yield keyword, value


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
