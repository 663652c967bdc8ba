"""Ask a server that has just started for some short answers: first calls pay for what is made only once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Final

from agentload.ask.plain import Plain
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.errors import EndpointError
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS

PRIMED: Final = (512, 64, 512)
"""Prompt tokens of each question."""
PRIMED_OUTPUT: Final = 16


async def prime(endpoint: Endpoint) -> None:
    """Ask one server; what comes of it is nobody's business. Raises EndpointError where it cannot be asked."""
    model = served_model(endpoint, await identify(endpoint))
    renderer = Renderer(seed=0, tokenizer=WORD_TOKENS)
    async with Plain(endpoint, model) as plain:
        for number, tokens in enumerate(PRIMED):
            context = (Segment(role="user", tokens=tokens, key=f"prime{number}"),)
            messages = json.loads(renderer.render(context, salt=f"prime {number}").messages)
            await plain.stream(messages, output_tokens=PRIMED_OUTPUT)


def primed(endpoints: Iterable[Endpoint], *, notice: Callable[[str], None]) -> None:
    """Ask servers one after the other, as they may share a machine; say which cannot be asked."""

    async def ask() -> None:
        for endpoint in endpoints:
            try:
                await prime(endpoint)
            except EndpointError as error:
                notice(f"{endpoint.name}: its first calls will be its first: {error.message}")

    asyncio.run(ask())
