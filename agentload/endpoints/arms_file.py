"""Read an arms file: `model`, and under `arms` a mapping a name. What stands beside `arms` holds for all of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.expectations import EXPECTABLE
from agentload.errors import EndpointError

EXAMPLE: Final = "arms: {bf16: {url: http://127.0.0.1:8000/v1}}"
KNOWN: Final = frozenset(each.name for each in fields(Endpoint)) - {"name", "profile"}
_TEXTS: Final = frozenset({"model", "key_env", "key_command", "ca_file", "machine", "log", "gpu", "gpu_metrics"})
_COUNTS: Final = frozenset({"gpus", "tensor_parallel", "data_parallel"})
_MAPPINGS: Final = frozenset({"aliases", "headers", "extra_body"})
_SECRET: Final = re.compile(r"\b(sk-|hf_|Bearer\s)\S{8,}")


def read_file(path: Path, *, model: str | None = None, key_env: str | None = None) -> tuple[Endpoint, ...]:
    """Read the arms of a file. Options given here win over the file's."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EndpointError(f"{path}: no such file", hint="agentload endpoints init") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise EndpointError(f"{path}: not YAML: {str(error).splitlines()[0]}", hint="quote values that hold ':' or '#'") from error
    if not isinstance(document, dict) or not isinstance(document.get("arms"), dict) or not document["arms"]:
        raise EndpointError(f"{path}: 'arms' must map names to endpoints", hint=EXAMPLE)
    shared = {str(name): value for name, value in document.items() if name != "arms"}
    given: dict[str, object] = {"model": model, "key_env": key_env}
    given = {name: value for name, value in given.items() if value is not None}
    return tuple(_endpoint(f"{path}: arms.{name}", str(name), shared, entry, given) for name, entry in document["arms"].items())


def checked_url(url: object, where: str) -> str:
    """Return a URL without the slash at its end. Raises EndpointError unless it is one of http, https or unix."""
    parts = urlsplit(str(url))
    if parts.scheme not in {"http", "https", "unix"} or not (parts.netloc or parts.path):
        raise EndpointError(f"{where}: '{url}' is not an http(s) URL", hint="url: http://127.0.0.1:8000/v1")
    return str(url).rstrip("/")


def _endpoint(where: str, name: str, shared: Mapping[str, object], entry: object, given: Mapping[str, object]) -> Endpoint:
    if not isinstance(entry, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(entry).__name__}", hint="url: http://127.0.0.1:8000/v1")
    merged = {**shared, **{str(key): value for key, value in entry.items()}, **given}
    if unknown := sorted(set(merged) - KNOWN):
        raise EndpointError(f"{where} has unknown field '{unknown[0]}'", hint=f"known: {', '.join(sorted(KNOWN))}")
    if "url" not in merged:
        raise EndpointError(f"{where} has no 'url'", hint="url: http://127.0.0.1:8000/v1")
    values = {field: _value(f"{where}.{field}", field, value) for field, value in merged.items() if value is not None}
    return Endpoint(name=name, **values)  # type: ignore[arg-type]  # each value was checked for its field


def _value(where: str, field: str, value: object) -> object:
    if field == "url":
        return checked_url(value, where)
    if field == "metrics":
        urls = value if isinstance(value, list) else [value]
        return tuple(checked_url(url, where) for url in urls)
    if field == "launch":
        return _launch(where, value)
    if field == "expect":
        return _expected(where, value)
    if field in _TEXTS:
        return _text(where, value)
    if field in _COUNTS:
        return _count(where, value)
    if field in _MAPPINGS:
        return _mapping(where, field, value)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise EndpointError(f"{where} must be a number, got {value!r}", hint="price_per_hour: 2.5")
    return float(value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise EndpointError(f"{where} must be text, got {type(value).__name__}", hint="put it in quotes")
    return str(value)


def _count(where: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EndpointError(f"{where} must be a whole number of at least 1, got {value!r}", hint="leave it out for 1")
    return value


def _mapping(where: str, field: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(value).__name__}", hint=f"{field}: {{name: value}}")
    if field == "extra_body":
        return {str(key): each for key, each in value.items()}
    if field == "headers" and any(str(key).lower() == "authorization" or _SECRET.search(str(each)) for key, each in value.items()):
        raise EndpointError(f"{where} holds a key", hint="key_env: NAME_OF_THE_VARIABLE, so that it is in no file")
    return {str(key): str(each) for key, each in value.items()}


def _expected(where: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(value).__name__}", hint="expect: {kv_cache_dtype: fp8}")
    if unknown := sorted({str(key) for key in value} - EXPECTABLE):
        raise EndpointError(f"{where} has unknown fact '{unknown[0]}'", hint=f"known: {', '.join(sorted(EXPECTABLE))}")
    return {str(key): each for key, each in value.items()}


def _launch(where: str, value: object) -> Launch:
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
    return Launch(command=tuple(str(word) for word in value), env={str(key): str(each) for key, each in env.items()})
