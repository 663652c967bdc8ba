"""See that servers are what they were before they were asked: what one that changed meanwhile answered says nothing of its arm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from agentload.ask.asker import Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.experiment.asking.signals import failure
from agentload.experiment.legs.known import remembered
from agentload.model.rows import AnswerRow


async def seen_again(endpoints: Sequence[Endpoint], known: Mapping[str, Identity], *, notice: Callable[[str], None]) -> dict[str, Identity]:
    """Ask servers once more who they are; one that does not answer is told of, and left out."""

    async def look(endpoint: Endpoint) -> Identity | None:
        before = known[endpoint.name]
        try:
            return remembered(await identify(endpoint, known=before), before)
        except EndpointError as error:
            notice(f"caveat: who {endpoint.name} is was not asked again: {error.message}")
            return None

    now = await asyncio.gather(*map(look, endpoints))
    return {endpoint.name: identity for endpoint, identity in zip(endpoints, now, strict=True) if identity is not None}


def voided(rows: Iterable[AnswerRow], why: str) -> Iterator[AnswerRow]:
    """Return answers as questions that nobody answered: they are asked again."""
    for row in rows:
        yield replace(row, score=None, right=None, answer=None, signals=failure(Failed(error=why)))
