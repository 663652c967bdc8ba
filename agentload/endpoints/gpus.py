"""Ask the exporter that an arm names for its GPUs before anything is measured: its silence must not come out after hours."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.reach import exporter
from agentload.endpoints.urls import without_credentials
from agentload.telemetry.gpu import of_page
from agentload.telemetry.reach import plain

TIMEOUT: Final = aiohttp.ClientTimeout(total=5)


async def silence(endpoint: Endpoint) -> str | None:
    """Say why nothing will be known of the arm's GPUs; None where its exporter tells of them, or none is named."""
    if endpoint.gpu_metrics is None:
        return None
    reached = await asyncio.to_thread(exporter, endpoint)
    try:
        async with reached.session(TIMEOUT) as session, session.get(plain(endpoint.gpu_metrics)) as response:
            why = _silence(await response.text(), endpoint.own_gpus) if response.status == 200 else f"answers {response.status}"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = type(error).__name__
    except ValueError:
        why = "is no metrics text"
    return None if why is None else f"{without_credentials(endpoint.gpu_metrics)} {why}"


def _silence(page: str, own: frozenset[str]) -> str | None:
    told = list(of_page(page))
    if not told:
        return "names no GPU"
    if not any(each.is_of(own) for each in told):
        return f"names GPU {', '.join(sorted({each.gpu for each in told}))}, and gpu_ids says {', '.join(sorted(own))}"
    return None
