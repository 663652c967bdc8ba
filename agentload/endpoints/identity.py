"""Ask a server what it is: version, served models, KV cache configuration. Facts only; a missing one stays missing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.telemetry.prometheus import Scrape, parse

TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a server said, at one moment."""

    models: tuple[str, ...]
    version: str | None = None
    max_model_len: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    """What /metrics counts, by our names; a server that has just become idle may still be behind."""
    missing: tuple[str, ...] = ()
    """Sources that did not answer, with the reason."""

    def facts(self) -> dict[str, object]:
        """Return what identifies the configuration, in the names that evidence reads."""
        config = self.cache_config
        return {
            "version": self.version,
            "models": list(self.models),
            "max_model_len": self.max_model_len,
            "kv_cache_dtype": config.get("cache_dtype"),
            "skip_layers": config.get("kv_cache_dtype_skip_layers"),
            "prefix_caching": config.get("enable_prefix_caching"),
            "block_size": config.get("block_size"),
            "pool_tokens": config.get("kv_cache_size_tokens"),
            "max_concurrency": config.get("kv_cache_max_concurrency"),
            "gpu_memory_utilization": config.get("gpu_memory_utilization"),
            "attention_backend": config.get("attention_backend"),
            "process_start_s": self.counters.get("process_start_s"),
        }


async def identify(endpoint: Endpoint) -> Identity:
    """Ask *endpoint*. Raises EndpointError when it cannot be used at all: unreachable, no OpenAI-compatible API, wrong key."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=endpoint.ca_file)) if endpoint.ca_file else None
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=endpoint.request_headers(), connector=connector) as session:
        listing = await _models(session, endpoint)
        missing: list[str] = []
        version = await _optional_json(session, f"{endpoint.root}/version", missing)
        scrape = await _scrape(session, f"{endpoint.root}/metrics", missing)
    served = tuple(str(entry["id"]) for entry in listing)
    length = next((entry.get("max_model_len") for entry in listing if entry["id"] == endpoint.model or endpoint.model is None), None)
    return Identity(
        models=served,
        version=str(version["version"]) if version and "version" in version else None,
        max_model_len=length if isinstance(length, int) else None,
        cache_config=scrape.cache_config if scrape else {},
        counters=scrape.values if scrape else {},
        missing=tuple(missing),
    )


def served_model(endpoint: Endpoint, identity: Identity) -> str:
    """Return the model to ask for. Raises EndpointError when the endpoint does not serve the one that is wanted."""
    if endpoint.model is None:
        if len(identity.models) == 1:
            return identity.models[0]
        raise EndpointError(f"{endpoint.name}: serves {len(identity.models)} models", hint=f"--model one of: {', '.join(identity.models)}")
    if endpoint.model not in identity.models:
        served = ", ".join(identity.models) or "none"
        raise EndpointError(f"{endpoint.name}: {endpoint.url} does not serve '{endpoint.model}'", hint=f"--model one of: {served}")
    return endpoint.model


async def _models(session: aiohttp.ClientSession, endpoint: Endpoint) -> list[dict[str, object]]:
    url = f"{endpoint.url}/models"
    try:
        async with session.get(url) as response:
            if response.status in {401, 403}:
                raise EndpointError(
                    f"{endpoint.name}: {url} refuses the key ({response.status})", hint="--api-key-env NAME_OF_THE_VARIABLE"
                )
            if response.status != 200:
                raise EndpointError(
                    f"{endpoint.name}: {url} answers {response.status}",
                    hint="is this the base URL of an OpenAI-compatible API, with its /v1?",
                )
            document = await response.json(content_type=None)
    except aiohttp.ClientSSLError as error:
        raise EndpointError(f"{endpoint.name}: {url}: {error}", hint="give the server's CA with `ca_file` in the arms file") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EndpointError(
            f"{endpoint.name}: cannot reach {url}: {str(error) or type(error).__name__}", hint=f"is the server up? try: curl {url}"
        ) from error
    except ValueError as error:
        raise EndpointError(f"{endpoint.name}: {url} does not answer JSON", hint="is this a web page or a proxy's login?") from error
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) and "id" in entry for entry in entries):
        raise EndpointError(f"{endpoint.name}: {url} lists no models", hint="is this the base URL of an OpenAI-compatible API?")
    return entries


async def _optional_json(session: aiohttp.ClientSession, url: str, missing: list[str]) -> dict[str, object] | None:
    try:
        async with session.get(url) as response:
            if response.status == 200:
                document = await response.json(content_type=None)
                return document if isinstance(document, dict) else None
            missing.append(f"{url}: {response.status}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        missing.append(f"{url}: {type(error).__name__}")
    return None


async def _scrape(session: aiohttp.ClientSession, url: str, missing: list[str]) -> Scrape | None:
    try:
        async with session.get(url) as response:
            if response.status == 200:
                return parse(await response.text())
            missing.append(f"{url}: {response.status}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        missing.append(f"{url}: {type(error).__name__}")
    return None


async def identify_all(endpoints: tuple[Endpoint, ...]) -> tuple[Identity, ...]:
    """Ask all endpoints at once; the first that cannot be used raises."""
    return tuple(await asyncio.gather(*(identify(endpoint) for endpoint in endpoints)))
