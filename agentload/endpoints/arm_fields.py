"""The values that the fields of an arm may have in an arms file, one reader a kind of value."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, get_args

from agentload.endpoints.endpoint import Launch
from agentload.endpoints.expectations import EXPECTABLE
from agentload.endpoints.keys import holds_key, keys_in_body, keys_in_environment, keys_in_headers
from agentload.endpoints.urls import checked_url, without_user
from agentload.errors import EndpointError
from agentload.replay.counting import Counting

_GPU: Final = re.compile(r"\d+(/\d+)?")

Reader: TypeAlias = Callable[[object, str], object]
"""Takes the value and where it stands; raises EndpointError."""


def value_of(field: str, value: object, where: str) -> object:
    """Read the value of a field that an endpoint has."""
    return _READERS[field](value, where)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise EndpointError(f"{where} must be text, got {type(value).__name__}", hint="put it in quotes")
    return str(value)


def _truth(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise EndpointError(f"{where} must be true or false, got {value!r}", hint="leave it out for true")
    return value


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EndpointError(f"{where} must be a whole number of at least 1, got {value!r}", hint="leave it out if it is not known")
    return value


def _number(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise EndpointError(f"{where} must be a number, got {value!r}", hint="price_per_hour: 2.5")
    return float(value)


def _policy(value: object, where: str) -> str:
    if value not in {"session", "pool", "call"}:
        raise EndpointError(f"{where} is session, pool or call, got {value!r}", hint="connections: session")
    return str(value)


def _counting(value: object, where: str) -> str:
    if value not in get_args(Counting):
        raise EndpointError(f"{where} is {', '.join(get_args(Counting))}, got {value!r}", hint="counting: usage")
    return str(value)


def _proxy(value: object, where: str) -> str:
    url = checked_url(value, where)
    if without_user(url) != url:
        raise EndpointError(f"{where} holds a password", hint="proxy_env: VARIABLE that holds the URL, so that it is in no file")
    return url


def _urls(value: object, where: str) -> tuple[str, ...]:
    return tuple(checked_url(url, where) for url in (value if isinstance(value, list) else [value]))


def _names(value: object, where: str) -> tuple[str, ...]:
    return tuple(_text(each, where) for each in (value if isinstance(value, list) else [value]))


def _gpus(value: object, where: str) -> tuple[str, ...]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int | str) and _GPU.fullmatch(str(each)) for each in found):
        raise EndpointError(
            f"{where} must be a list of GPU numbers, got {value!r}", hint="gpu_ids: [0, 1], or [0/7] for instance 7 of a GPU that is split"
        )
    return tuple(str(each) for each in found)


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(value).__name__}", hint=f"{where.rsplit('.', 1)[-1]}: {{name: value}}")
    return {str(key): each for key, each in value.items()}


def _texts(value: object, where: str) -> dict[str, str]:
    return {key: str(each) for key, each in _mapping(value, where).items()}


def _body(value: object, where: str) -> dict[str, object]:
    found = _mapping(value, where)
    if (name := next(keys_in_body(found), None)) is not None:
        raise EndpointError(
            f"{where}.{name} holds a key",
            hint="header_env: {HEADER: VARIABLE}, or in the gateway itself, so that it is in no file",
        )
    return found


def _headers(value: object, where: str) -> dict[str, str]:
    found = _texts(value, where)
    if (name := next(keys_in_headers(found), None)) is not None:
        raise EndpointError(
            f"{where}.{name} holds a key", hint=f"key_env: VARIABLE, or header_env: {{{name}: VARIABLE}}, so that it is in no file"
        )
    return found


def _expected(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(value).__name__}", hint="expect: {kv_cache_dtype: fp8}")
    if unknown := sorted({str(key) for key in value} - EXPECTABLE):
        raise EndpointError(f"{where} has unknown fact '{unknown[0]}'", hint=f"known: {', '.join(sorted(EXPECTABLE))}")
    return {str(key): each for key, each in value.items()}


def _launch(value: object, where: str) -> Launch:
    env: object = {}
    if isinstance(value, dict):
        if unknown := sorted(set(value) - {"command", "env"}):
            raise EndpointError(f"{where} has unknown field '{unknown[0]}'", hint="known: command, env")
        env, value = value.get("env") or {}, value.get("command")
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise EndpointError(f"{where}: {error}", hint="write the command as a list") from error
    if not isinstance(value, list) or not value or not isinstance(env, dict):
        raise EndpointError(f"{where} has no command", hint="launch: vllm serve MODEL --port 8000")
    made = Launch(command=tuple(str(word) for word in value), env={str(key): str(each) for key, each in env.items()})
    if holds_key(made.command):
        raise EndpointError(f"{where} holds a key", hint="servers inherit your environment: export VLLM_API_KEY=… before you launch")
    if (name := next(keys_in_environment(made.env), None)) is not None:
        raise EndpointError(f"{where}.env.{name} holds a key", hint=f"servers inherit your environment: export {name}=… before you launch")
    return made


_READERS: Final[Mapping[str, Reader]] = {
    "url": checked_url,
    "model": _text,
    "aliases": _texts,
    "key_env": _text,
    "key_command": _text,
    "headers": _headers,
    "header_env": _texts,
    "extra_body": _body,
    "force_lengths": _truth,
    "counting": _counting,
    "ca_file": _text,
    "client_certificate": _text,
    "client_key": _text,
    "proxy": _proxy,
    "proxy_env": _text,
    "connections": _policy,
    "idle_s": _number,
    "expect_bytes": _count,
    "replica_headers": _names,
    "tokenizer": _text,
    "config": _text,
    "machine": _text,
    "expect": _expected,
    "metrics": _urls,
    "log": _text,
    "gpu": _text,
    "gpus": _count,
    "gpu_ids": _gpus,
    "gpu_metrics": checked_url,
    "price_per_hour": _number,
    "tensor_parallel": _count,
    "data_parallel": _count,
    "launch": _launch,
}
FIELDS: Final = frozenset(_READERS)
