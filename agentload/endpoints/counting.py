"""Have a server count tokens, so that prompts have exactly the lengths that the trace asks for.

vLLM and SGLang count whole requests with their chat template at `/tokenize`,
which is next to `/v1`. For a server without it, each word of the table is taken
for a token; each call's row then says what the server counted.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.reach import reach
from agentload.errors import UsageError
from agentload.prompts.calibrate import Message, calibrate
from agentload.prompts.tokenizer import MeasuredTokens
from agentload.telemetry.reach import document_of, page

TIMEOUT_S = 30.0


class _AbsentError(Exception):
    """Report a server that does not count tokens."""


async def tokenizer(endpoint: Endpoint, model: str) -> MeasuredTokens | None:
    """Measure the tokenizer and chat template behind *endpoint*; None if nobody can count.

    The files that the arms file names are measured instead of the server.
    """
    if endpoint.tokenizer is not None:
        # Late: it loads a template engine, which only those need who name a file.
        from agentload.prompts.local import from_file

        return await asyncio.to_thread(from_file, tokenizer_file(endpoint.tokenizer))
    return await asyncio.to_thread(_measured, endpoint, model)


def tokenizer_file(text: str) -> Path:
    """Return the tokenizer.json that *text* names: a file, or the one in a folder."""
    path = Path(text).expanduser()
    found = path / "tokenizer.json" if path.is_dir() else path
    if not found.is_file():
        raise UsageError(
            f"{found}: no such tokenizer",
            hint="name the tokenizer.json of the served model, or the folder with it",
        )
    return found


def _measured(endpoint: Endpoint, model: str) -> MeasuredTokens | None:
    def count(messages: Sequence[Message], tools: Sequence[Message] | None) -> int | None:
        found = _tokenized(endpoint, model, messages, tools)
        if found is None:
            return None
        return int(found["count"])

    try:
        if count([{"role": "user", "content": "also"}], None) is None:
            return None
        # Texts that are not drawn are estimated: a request
        # for each would hold up the loop that stamps answers.
        measured = calibrate(count)
    except _AbsentError:
        return None
    # A stand-in counts the same for every request.
    return measured if measured.tokens_a_word > 0 else None


def token_ids(
    endpoint: Endpoint, model: str, messages: Sequence[Message], tools: Sequence[Message] | None
) -> tuple[int, ...] | None:
    """Return the ids of a whole request's tokens; None if the server does not return them."""
    try:
        found = _tokenized(endpoint, model, messages, tools)
    except _AbsentError:
        return None
    ids = None if found is None else found.get("tokens")
    if isinstance(ids, list) and ids and all(isinstance(each, int) for each in ids):
        return tuple(ids)
    return None


def _tokenized(
    endpoint: Endpoint, model: str, messages: Sequence[Message], tools: Sequence[Message] | None
) -> dict[str, Any] | None:
    """Return the server's count of a request; None if it refuses this request.

    Templates without tools refuse requests with tools. Raises _AbsentError if the
    server does not count at all.
    """
    asked: dict[str, object] = {
        "model": model,
        "messages": list(messages),
        "add_generation_prompt": True,
    }
    asked |= {} if tools is None else {"tools": list(tools)}
    try:
        answer = page(f"{endpoint.root}/tokenize", reach(endpoint), within_s=TIMEOUT_S, given=asked)
        if answer.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}:
            return None
        counted = document_of(answer.body.decode()) if answer.is_good else None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _AbsentError from error
    if not isinstance(counted, dict) or not isinstance(counted.get("count"), int):
        raise _AbsentError
    return counted
