"""Read `--endpoints`: `a=URL,b=URL`, a YAML file, or `emulated:PROFILE[/ARM]`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agentload.endpoints.arms_file import read_file
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.urls import checked_url, without_credentials
from agentload.errors import EndpointError

EXAMPLE = "--endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1"
EMULATED = "emulated:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Servers of a shipped profile, to be started for the run."""

    profile: str
    arms: tuple[str, ...]
    """Empty: all that the profile has."""


def read(
    text: str, *, model: str | None = None, key_env: str | None = None, tokenizer: str | None = None
) -> tuple[Endpoint, ...] | Emulated:
    """Say what *text* names. Options given here win over those of a file."""
    if text.startswith(EMULATED):
        profile, _, arm = text.removeprefix(EMULATED).partition("/")
        return Emulated(profile=profile, arms=tuple(filter(None, arm.split("+"))))
    if is_arms_file(text):
        return read_file(Path(text), model=model, key_env=key_env, tokenizer=tokenizer)
    endpoints = tuple(_inline(part.strip(), position) for position, part in enumerate(text.split(",")))
    return tuple(replace(endpoint, model=model, key_env=key_env, tokenizer=tokenizer) for endpoint in _unique(endpoints))


def is_arms_file(text: str) -> bool:
    """Say whether *text* names a file."""
    return "=" not in text and text.endswith((".yaml", ".yml")) and not text.startswith(EMULATED)


def _inline(part: str, position: int) -> Endpoint:
    name, mark, url = part.partition("=")
    if not mark or "://" in name:
        name, url = (f"arm{position + 1}", part)
    if not url:
        raise EndpointError(f"endpoint {position + 1} is empty: '{without_credentials(part)}'", hint=EXAMPLE)
    return Endpoint(name=name, url=checked_url(url, name))


def _unique(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    names = [endpoint.name for endpoint in endpoints]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise EndpointError(f"two endpoints are called '{repeated}'", hint=EXAMPLE)
    return endpoints
