"""Read options from a function's keyword-only signature, and check what was given against it."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from agentload.errors import UsageError

Bytes: TypeAlias = Annotated[float, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One keyword of a function."""

    name: str
    type: Any
    default: object


def options(function: Callable[..., Any]) -> tuple[Option, ...]:
    """List a function's options."""
    types = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        Option(name=parameter.name, type=types[parameter.name], default=parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    )


def checked(name: str, known: tuple[Option, ...], given: Mapping[str, object]) -> dict[str, Any]:
    """Convert what was given, perhaps as text, to the options' types; raise `UsageError` for what does not fit."""
    by_name = {option.name: option for option in known}
    read = {}
    for key, value in given.items():
        if key not in by_name:
            raise UsageError(f"'{name}' has no option '{key}'", hint=nearest(key, tuple(by_name)))
        try:
            read[key] = msgspec.convert(value, by_name[key].type, strict=False)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0]
            raise UsageError(f"{name}: {key}: {what}, got {value!r}", hint=f"the default is {by_name[key].default}") from error
    return read


def nearest(name: str, known: tuple[str, ...]) -> str:
    """Name what the user may have meant."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known)}" if known else "it has none"
