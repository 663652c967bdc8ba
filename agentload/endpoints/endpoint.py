"""One endpoint of a comparison: where it is, how to speak to it, what it is expected to be."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agentload.errors import EndpointError

KEY_COMMAND_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the server behind an endpoint is started."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Set beside the caller's own environment."""


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
    key_command: str | None = None
    """Command that prints the key, for tokens that expire."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, object] = field(default_factory=dict)
    ca_file: str | None = None
    machine: str | None = None
    profile: str | None = None
    """Emulated: the profile and arm that stand behind the URL."""
    expect: Mapping[str, object] = field(default_factory=dict)
    """Facts that the server must confirm: kv_cache_dtype, skip_layers, prefix_caching, backend, version, max_model_len."""
    metrics: tuple[str, ...] = ()
    """URL of each replica's metrics; () is /metrics beside the API."""
    log: str | None = None
    """File that holds the server's start-up log."""
    gpu: str | None = None
    gpus: int = 1
    """Of one replica."""
    gpu_metrics: str | None = None
    """URL of an exporter that says what the GPUs do, such as DCGM's."""
    price_per_hour: float | None = None
    """Of one GPU, in US dollars."""
    tensor_parallel: int = 1
    data_parallel: int = 1
    launch: Launch | None = None

    @property
    def root(self) -> str:
        """Return the URL without its /v1, where /metrics and /version are."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def metrics_urls(self) -> tuple[str, ...]:
        """Return where each replica's metrics are."""
        return self.metrics or (f"{self.root}/metrics",)

    def key(self) -> str | None:
        """Read the key from the environment or its command. Raises EndpointError when there is none."""
        if self.key_command is not None:
            return self._printed_key(self.key_command)
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

    def _printed_key(self, command: str) -> str:
        try:
            done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=KEY_COMMAND_S, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            # Neither output nor arguments: both may hold what is secret.
            raise EndpointError(
                f"{self.name}: key_command failed: {type(error).__name__}", hint="run it by hand; it must print the key alone"
            ) from None
        if not (key := done.stdout.strip()):
            raise EndpointError(f"{self.name}: key_command printed nothing", hint="it must print the key alone")
        return key
