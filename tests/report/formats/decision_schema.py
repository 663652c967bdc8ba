"""Make the JSON schema of a decision file from the types of its report."""

from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from agentload.plugins import paragraphs
from agentload.report.formats.json import COMMANDS, Report


def schema() -> str:
    """Return the JSON schema of a decision file."""
    made = msgspec.json.schema(_printed(Report))
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentload decision",
        **_nullable(made),
    }
    return msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=2).decode() + "\n"


@cache
def _printed(kind: type) -> type:
    """Return the type of what `_written` makes of a dataclass.

    All its fields, also those at their default.
    """
    hints = get_type_hints(kind)
    parts = [
        (
            COMMANDS.get(each.name, each.name),
            str | None if each.name in COMMANDS else _part(hints[each.name]),
        )
        for each in fields(kind)
    ]
    return make_dataclass(
        kind.__name__, parts, namespace={"__doc__": paragraphs(kind.__doc__ or "")}, kw_only=True
    )


def _part(hint: Any) -> Any:  # noqa: ANN401  # a type, or what stands in the brackets behind one
    if isinstance(hint, type) and is_dataclass(hint):
        return _printed(hint)
    origin = get_origin(hint)
    parts = tuple(map(_part, get_args(hint)))
    if origin is None or not parts:
        return hint
    if origin in (Union, UnionType):
        return reduce(or_, parts)
    return origin[parts]


def _nullable(part: Any) -> Any:  # noqa: ANN401  # a schema is JSON of any shape
    """Let every number be null: JSON has no word for what is not a number."""
    match part:
        case {"type": "number", **rest}:
            return {"type": ["number", "null"], **rest}
        case dict():
            return {key: _nullable(value) for key, value in part.items()}
        case list():
            return [_nullable(each) for each in part]
        case _:
            return part
