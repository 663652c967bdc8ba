"""Read typed fields out of a request body, refusing them in the words of vLLM's validator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from agentload.serve.refusal import RefusedError, bad_parameter, unreadable

Json: TypeAlias = Mapping[str, Any]
"""An object as the client sent it."""


def parsed(body: bytes) -> Json:
    """Return the object that a body holds."""
    try:
        fields = msgspec.json.decode(body)
    except msgspec.DecodeError:
        fields = _parsed_slowly(body)
    if not isinstance(fields, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise RefusedError(unreadable("model_attributes_type", message, where="body", value=fields))
    return fields


def _parsed_slowly(body: bytes) -> object:
    # The standard library says where and why in the very words that vLLM's web framework passes on.
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        raise RefusedError(unreadable("json_invalid", "JSON decode error", where=where, value={}, cause=error.msg)) from error
    except UnicodeDecodeError as error:
        raise RefusedError(unreadable("json_invalid", "JSON decode error", where="body.0", value={}, cause=str(error))) from error


def integer(fields: Json, name: str) -> int | None:
    """Return an optional whole number."""
    value = fields.get(name)
    if value is None or type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise RefusedError(unreadable("int_parsing", message, where=f"body.{name}", value=value))
    raise RefusedError(unreadable("int_type", "Input should be a valid integer", where=f"body.{name}", value=value))


def objects(fields: Json, name: str) -> tuple[Json, ...]:
    """Return a list of objects, empty when the field is absent."""
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise RefusedError(unreadable("list_type", "Input should be a valid list", where=f"body.{name}", value=value))
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise RefusedError(unreadable("dict_type", "Input should be a valid dictionary", where=f"body.{name}.{index}", value=item))
    return tuple(value)


def options(fields: Json, name: str) -> Json:
    """Return an object, empty when the field is absent."""
    value = fields.get(name) or {}
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise RefusedError(unreadable("model_attributes_type", message, where=f"body.{name}", value=value))
    return value


def stop_texts(fields: Json) -> tuple[str, ...]:
    """Return the texts at which the answer ends."""
    value = fields.get("stop") or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedError(unreadable("string_type", "Input should be a valid string", where="body.stop", value=value))
    if "" in texts:
        raise RefusedError(bad_parameter("stop cannot contain an empty string.", param="stop", value=value))
    return tuple(texts)


def invalid(text: str, fields: Json, *, param: str) -> RefusedError:
    """Refuse fields that contradict each other, as a validator over the whole body does."""
    refusal = unreadable("value_error", f"Value error, {text}", where="body", value=fields, cause=text)
    return RefusedError(replace(refusal, param=param))
