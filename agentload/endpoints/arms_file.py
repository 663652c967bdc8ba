"""Read an arms file: `model`, and under `arms` a mapping a name. What stands beside `arms` holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import yaml

from agentload.endpoints.arm_fields import value_of
from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError

EXAMPLE: Final = "arms: {bf16: {url: http://127.0.0.1:8000/v1}}"
KNOWN: Final = (frozenset(each.name for each in fields(Endpoint)) - {"name", "profile", "places"}) | {"machines"}
EXCLUSIVE: Final = (("key_env", "key_command"), ("proxy", "proxy_env"))


def read_file(path: Path, *, model: str | None = None, key_env: str | None = None, tokenizer: str | None = None) -> tuple[Endpoint, ...]:
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
    given: dict[str, object] = {"model": model, "key_env": key_env, "tokenizer": tokenizer}
    given = {name: value for name, value in given.items() if value is not None}
    return tuple(_endpoint(f"{path}: arms.{name}", str(name), shared, entry, given) for name, entry in document["arms"].items())


def _endpoint(where: str, name: str, shared: Mapping[str, object], entry: object, given: Mapping[str, object]) -> Endpoint:
    if not isinstance(entry, dict):
        raise EndpointError(f"{where} must be a mapping, got {type(entry).__name__}", hint="url: http://127.0.0.1:8000/v1")
    own = {str(key): value for key, value in entry.items()}
    merged = {**_without_rivals(shared, own), **own}
    merged = {**_without_rivals(merged, given), **given}
    if unknown := sorted(set(merged) - KNOWN):
        raise EndpointError(f"{where} has unknown field '{unknown[0]}'", hint=f"known: {', '.join(sorted(KNOWN))}")
    if (machines := merged.pop("machines", None)) is not None:
        return _on_machines(where, name, merged, machines)
    if "url" not in merged:
        raise EndpointError(f"{where} has no 'url'", hint="url: http://127.0.0.1:8000/v1")
    for one, other in EXCLUSIVE:
        if merged.get(one) is not None and merged.get(other) is not None:
            raise EndpointError(f"{where} has both '{one}' and '{other}'", hint="leave one out")
    values = {field: value_of(field, value, f"{where}.{field}") for field, value in merged.items() if value is not None}
    return Endpoint(name=name, **values)  # type: ignore[arg-type]  # each value was checked for its field


def _on_machines(where: str, name: str, merged: Mapping[str, object], machines: object) -> Endpoint:
    """Read an arm that has a server on several machines: a URL each, or what else differs there."""
    hint = "machines: {m1: http://10.0.0.1:8000/v1, m2: http://10.0.0.2:8000/v1}"
    if not isinstance(machines, dict) or len(machines) < 2:
        raise EndpointError(f"{where}.machines must map two names or more to URLs", hint=hint)
    if "url" in merged or "machine" in merged:
        raise EndpointError(f"{where} has both 'machines' and '{'url' if 'url' in merged else 'machine'}'", hint="leave one out")
    own = {str(machine): {"url": each} if isinstance(each, str) else each for machine, each in machines.items()}
    places = tuple(_endpoint(f"{where}.machines.{each}", name, {**merged, "machine": each}, entry, {}) for each, entry in own.items())
    return replace(places[0], places=places)


def _without_rivals(outer: Mapping[str, object], inner: Mapping[str, object]) -> dict[str, object]:
    """Leave out what *inner* says in another way."""
    said = {rival for pair in EXCLUSIVE for name, rival in (pair, pair[::-1]) if inner.get(name) is not None}
    return {name: value for name, value in outer.items() if name not in said}
