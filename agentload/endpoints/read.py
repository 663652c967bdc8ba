"""Read `--endpoints`: `a=URL,b=URL`, a YAML file, or `emulated:PROFILE[/ARM]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError

EXAMPLE = "--endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1"
EMULATED = "emulated:"
KNOWN = frozenset({"url", "model", "aliases", "key_env", "headers", "extra_body", "ca_file", "machine", "expect"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Servers of a shipped profile, to be started for the run."""

    profile: str
    arms: tuple[str, ...]
    """Empty: all that the profile has."""


def read(text: str, *, model: str | None = None, key_env: str | None = None) -> tuple[Endpoint, ...] | Emulated:
    """Say what *text* names. Options given here win over those of a file."""
    if text.startswith(EMULATED):
        profile, _, arm = text.removeprefix(EMULATED).partition("/")
        return Emulated(profile=profile, arms=tuple(filter(None, arm.split("+"))))
    if "=" not in text and text.endswith((".yaml", ".yml")):
        return read_file(Path(text), model=model, key_env=key_env)
    endpoints = tuple(_inline(part.strip(), position, model=model, key_env=key_env) for position, part in enumerate(text.split(",")))
    return _unique(endpoints)


def read_file(path: Path, *, model: str | None = None, key_env: str | None = None) -> tuple[Endpoint, ...]:
    """Read an arms file: `model`, and under `arms` a mapping a name."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise EndpointError(f"{path}: no such file", hint=EXAMPLE) from error
    except yaml.YAMLError as error:
        raise EndpointError(f"{path}: not YAML: {str(error).splitlines()[0]}", hint="quote values that hold ':' or '#'") from error
    if not isinstance(document, dict) or not isinstance(document.get("arms"), dict) or not document["arms"]:
        raise EndpointError(f"{path}: 'arms' must map names to endpoints", hint="arms: {bf16: {url: http://127.0.0.1:8000/v1}}")
    shared_model = model or document.get("model")
    return tuple(_from_file(path, str(name), entry, model=shared_model, key_env=key_env) for name, entry in document["arms"].items())


def _from_file(path: Path, name: str, entry: object, *, model: str | None, key_env: str | None) -> Endpoint:
    if not isinstance(entry, dict):
        raise EndpointError(f"{path}: arms.{name} must be a mapping, got {type(entry).__name__}", hint="url: http://127.0.0.1:8000/v1")
    if unknown := sorted(set(entry) - KNOWN):
        raise EndpointError(f"{path}: arms.{name} has unknown field '{unknown[0]}'", hint=f"known: {', '.join(sorted(KNOWN))}")
    if "url" not in entry:
        raise EndpointError(f"{path}: arms.{name} has no 'url'", hint="url: http://127.0.0.1:8000/v1")
    fields: Mapping[str, object] = {**entry, "model": entry.get("model", model), "key_env": key_env or entry.get("key_env")}
    fields = {**fields, "url": _checked_url(str(entry["url"]), name)}
    return Endpoint(name=name, **fields)  # type: ignore[arg-type]  # field names were checked above, values come from YAML


def _inline(part: str, position: int, *, model: str | None, key_env: str | None) -> Endpoint:
    name, mark, url = part.partition("=")
    if not mark or "://" in name:
        name, url = (f"arm{position + 1}", part)
    if not url:
        raise EndpointError(f"endpoint {position + 1} is empty: '{part}'", hint=EXAMPLE)
    return Endpoint(name=name, url=_checked_url(url, name), model=model, key_env=key_env)


def _checked_url(url: str, name: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https", "unix"} or not (parts.netloc or parts.path):
        raise EndpointError(f"{name}: '{url}' is not an http(s) URL", hint=EXAMPLE)
    return url.rstrip("/")


def _unique(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    names = [endpoint.name for endpoint in endpoints]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise EndpointError(f"two endpoints are called '{repeated}'", hint=EXAMPLE)
    return endpoints
