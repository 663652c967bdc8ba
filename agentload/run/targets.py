"""What the wire and the watch need to know of an endpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.reach import exporter, proxy, reach
from agentload.live.caller import Speech
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.study.parts import Request
from agentload.telemetry.watch import Source

HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def target(endpoint: Endpoint) -> Target:
    """Return how timed calls reach the endpoint."""
    files = (endpoint.ca_file, endpoint.client_certificate)
    tls = None if files == (None, None) else context(authority=files[0], certificate=files[1], key=endpoint.client_key)
    made = Target(
        arm=endpoint.name,
        url=endpoint.url,
        api_key=endpoint.key(),
        headers=endpoint.own_headers(),
        replica_headers=endpoint.replica_headers,
        connections=endpoint.connections,
        tls=tls,
        proxy=proxy(endpoint),
        expect_bytes=endpoint.expect_bytes,
    )
    return made if endpoint.idle_s is None else replace(made, idle_s=endpoint.idle_s)


def targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    """Return how timed calls reach each of the endpoints."""
    return tuple(target(endpoint) for endpoint in endpoints)


def speech(endpoint: Endpoint, model: str, request: Request) -> Speech:
    """Return how the endpoint is asked; what its arms file says of its bodies wins over what the study says of all."""
    return Speech(
        model=model,
        aliases=endpoint.aliases,
        extra={**request.body(), **endpoint.extra_body},
        counting=endpoint.counting,
        is_forced=endpoint.force_lengths,
    )


def source(endpoint: Endpoint) -> Source:
    """Return where the endpoint's figures are."""
    return Source(
        urls=endpoint.metrics_urls,
        reach=reach(endpoint),
        renewed=endpoint.request_headers if endpoint.key_command is not None else None,
        log=endpoint.log,
        gpu_url=endpoint.gpu_metrics,
        gpu_reach=exporter(endpoint),
        gpu_ids=endpoint.own_gpus,
        is_here=endpoint.profile is None and (urlsplit(endpoint.url).hostname in HERE or endpoint.url.startswith("http+unix")),
    )
