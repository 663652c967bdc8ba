"""The SDK's client for one endpoint, and what may be kept of its errors."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.reach import proxy, trusted
from agentload.endpoints.urls import masked, socket_of
from agentload.replay.fault import fault
from agentload.replay.fault import masked as cut
from agentload.telemetry.reach import plain

if TYPE_CHECKING:
    import openai


def client(endpoint: Endpoint, *, timeout_s: float, retries: int) -> openai.AsyncOpenAI:
    """Open a client with all that the arms file says of the endpoint."""
    import httpx2
    import openai

    socket = socket_of(endpoint.url)
    return openai.AsyncOpenAI(
        base_url=plain(endpoint.url),
        api_key=endpoint.key() or "none",
        default_headers=endpoint.own_headers(),
        timeout=timeout_s,
        max_retries=retries,
        # The environment's proxies are not asked: timed calls do not take them either.
        http_client=openai.DefaultAsyncHttpx2Client(
            verify=trusted(endpoint) or ssl.create_default_context(), proxy=proxy(endpoint), trust_env=False
        )
        if socket is None
        else openai.DefaultAsyncHttpx2Client(transport=httpx2.AsyncHTTPTransport(uds=socket)),
    )


def told(error: Exception, secrets: Sequence[str]) -> str:
    """Return the kind of an error and at most 200 characters of what the server said, without keys and echoed prompts."""
    import openai

    if isinstance(error, openai.APIStatusError):
        said = fault(error.body).text if error.body is not None else cut(str(error.message))
        return masked(f"{error.status_code}: {said}", secrets)
    return masked(f"{type(error).__name__}: {cut(str(error))}", secrets)
