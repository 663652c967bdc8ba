"""One endpoint of a comparison: where it is, how to speak to it, what it is expected to be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentload.errors import EndpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Name a server configuration and say how to reach it."""

    name: str
    url: str
    """Base URL of the OpenAI-compatible API, such as http://127.0.0.1:8000/v1."""
    model: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Model name for each alias that a trace's turns use."""
    key_env: str | None = None
    """Environment variable that holds the key; the key itself is never kept."""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, object] = field(default_factory=dict)
    ca_file: str | None = None
    machine: str | None = None
    profile: str | None = None
    """Emulated: the profile and arm that stand behind the URL."""
    expect: Mapping[str, object] = field(default_factory=dict)
    """Facts that the server must confirm: kv_cache_dtype, skip_layers, prefix_caching, backend, version, max_model_len."""

    @property
    def root(self) -> str:
        """Return the URL without its /v1, where /metrics and /version are."""
        return self.url.rstrip("/").removesuffix("/v1")

    def key(self) -> str | None:
        """Read the key from the environment. Raises EndpointError when the variable is not set."""
        if self.key_env is None:
            return None
        value = os.environ.get(self.key_env)
        if not value:
            raise EndpointError(f"{self.name}: environment variable {self.key_env} is not set", hint=f"export {self.key_env}=…")
        return value

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request, the key's included."""
        key = self.key()
        return {**self.headers, **({"Authorization": f"Bearer {key}"} if key else {})}
