"""Turn parsed YAML into frozen dataclasses by their type hints; every complaint names its place and what was expected."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

Bounds = Mapping[str, tuple[float, float]]
"""Allowed range of a field, by its name; every other number is at least 0."""


class ComplaintError(Exception):
    """Say at which place of the file which value was not what it should be."""

    def __init__(self, at: str, expected: str, got: object = dataclasses.MISSING) -> None:
        given = "" if got is dataclasses.MISSING else f", got {_shown(got)}"
        super().__init__(f"{at or 'top level'}: expected {expected}{given}")


def build(cls: type[T], value: object, at: str, *, bounds: Bounds) -> T:
    """Build a dataclass from a mapping with exactly its fields. Raises ComplaintError."""
    if not isinstance(value, Mapping):
        raise ComplaintError(at, f"a mapping of {cls.__name__} fields", value)
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # T is a dataclass by contract
    for key in value:
        if key not in fields:
            raise ComplaintError(_join(at, str(key)), f"one of {', '.join(sorted(fields))}", key)
    made: dict[str, object] = {}
    for name, field in fields.items():
        place = _join(at, name)
        if name in value:
            made[name] = _value(hints[name], value[name], place, name, bounds)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ComplaintError(place, f"{_named(hints[name])} (the field is missing)")
    return cls(**made)


def _value(hint: Any, value: object, at: str, name: str, bounds: Bounds) -> object:  # noqa: ANN401 - a type hint has no narrower type
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        if value is None:
            return None
        (inner,) = [argument for argument in arguments if argument is not types.NoneType]
        return _value(inner, value, at, name, bounds)
    if origin is Literal:
        if value not in arguments:
            raise ComplaintError(at, f"one of {', '.join(map(str, arguments))}", value)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ComplaintError(at, "a list", value)
        return tuple(_value(arguments[0], item, f"{at}[{index}]", name, bounds) for index, item in enumerate(value))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value, at, bounds=bounds)
    return _SCALARS[hint](value, at, bounds.get(name, (0, math.inf)))


def _number(value: object, at: str, bounds: tuple[float, float]) -> float:
    low, high = bounds
    expected = f"a number of at least {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
    # YAML 1.1 reads 1e-5 (without a dot) as text.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ComplaintError(at, expected, value)
    try:
        number = float(value)
    except ValueError:
        raise ComplaintError(at, expected, value) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise ComplaintError(at, expected, value)
    return number


def _whole(value: object, at: str, bounds: tuple[float, float]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ComplaintError(at, "a whole number", value)
    return int(_number(value, at, bounds))


def _text(value: object, at: str, _: tuple[float, float]) -> str:
    if not isinstance(value, str) or not value:
        raise ComplaintError(at, "a text", value)
    return value


def _truth(value: object, at: str, _: tuple[float, float]) -> bool:
    if not isinstance(value, bool):
        raise ComplaintError(at, "true or false", value)
    return value


_SCALARS: Mapping[Any, Callable[[object, str, tuple[float, float]], object]] = {float: _number, int: _whole, str: _text, bool: _truth}


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _named(hint: Any) -> str:  # noqa: ANN401 - as above
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    if hint in names:
        return names[hint]
    return "a list" if get_origin(hint) is tuple else "a mapping" if dataclasses.is_dataclass(hint) else str(hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
