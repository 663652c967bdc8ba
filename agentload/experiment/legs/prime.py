"""Ask a server that has just started for some short answers: first calls pay for what is made only once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from agentload.ask.asker import Failed
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
REFUSED: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
REMEDY: Final = "; is it a field that this server refuses? `force_lengths: false` and `counting: usage` in the arms file"


async def prime(endpoint: Endpoint) -> str | None:
    """Ask one server; return why it did not answer, None where it did. Raises EndpointError where it cannot be asked."""
    model = served_model(endpoint, await identify(endpoint))
    renderer = Renderer(seed=0, tokenizer=WORD_TOKENS)
    why = None
    async with Plain(endpoint, model) as plain:
        for number, tokens in enumerate(PRIMED):
            context = (Segment(role="user", tokens=tokens, key=f"prime{number}"),)
            messages = json.loads(renderer.render(context, salt=f"prime {number}").messages)
            answer = await plain.stream(messages, output_tokens=PRIMED_OUTPUT)
            if isinstance(answer, Failed):
                why = why or answer.error + (REMEDY if answer.http_status in REFUSED else "")
    return why


def primed(endpoints: Iterable[Endpoint], *, notice: Callable[[str], None]) -> None:
    """Ask servers one after the other, as they may share a machine; say which did not answer."""

    async def ask() -> None:
        for endpoint in endpoints:
            try:
                why = await prime(endpoint)
            except EndpointError as error:
                why = error.message
            if why is not None:
                notice(unprimed(endpoint.name, why))

    asyncio.run(ask())


def unprimed(arm: str, why: str) -> str:
    """Say what it means that a server was not primed."""
    return f"{arm}: its first calls will be its first: {why}"
