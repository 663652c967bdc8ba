"""How many tokens each arm's KV pool holds, before anything is played: as the server says, or as its profile implies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.errors import EndpointError
from agentload.experiment.arms import arms_of
from agentload.kvmath.pool import pool_of


def pools(endpoints: Sequence[Endpoint]) -> dict[str, float | None]:
    """Return the tokens of each arm's pool; None where nobody tells."""
    return {endpoint.name: _emulated(endpoint.profile) if endpoint.profile else asyncio.run(_asked(endpoint)) for endpoint in endpoints}


def _emulated(profile: str) -> float:
    name, _, arm = profile.rpartition("/")
    (found,) = arms_of(name, [arm])
    return float(pool_of(found).tokens)


async def _asked(endpoint: Endpoint) -> float | None:
    try:
        tokens = (await identify(endpoint)).facts()["pool_tokens"]
        return None if tokens is None else float(str(tokens))  # a metric's labels are text
    except (EndpointError, ValueError):  # it does not run yet, or says nothing of use; when it is played on, its absence is an error
        return None
