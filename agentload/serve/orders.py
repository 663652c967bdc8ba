"""Turn the bytes of a request into an order for the engine, or into a refusal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from agentload.serve import refusal, wanted
from agentload.serve.chat_face import ChatFace
from agentload.serve.completions_face import CompletionsFace
from agentload.serve.content import Runs, content, token_ids
from agentload.serve.exchange import Exchange
from agentload.serve.facts import Facts
from agentload.serve.refusal import RefusedError
from agentload.serve.scripting import script
from agentload.serve.wanted import Face
from agentload.serve.wire import Face as Speaker

_PREFIX: Final[dict[Face, str]] = {"chat": "chatcmpl", "completions": "cmpl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Hold a request that can be served."""

    exchange: Exchange
    speaker: Speaker
    content: Runs

    @property
    def tokens(self) -> int:
        """Return how many tokens will be generated."""
        return len(self.exchange.script.pieces)


def order(body: bytes, *, face: Face, content_type: str, request_id: str, facts: Facts, seed: int) -> Order:
    """Read a request and decide what it will be answered; raise RefusedError if it cannot be served."""
    if content_type != "application/json":
        raise RefusedError(refusal.unsupported_media())
    server = facts.arm.server
    asked = (wanted.chat if face == "chat" else wanted.completion)(body, max_model_len=server.max_model_len)
    if asked.model is not None and asked.model != facts.model:
        raise RefusedError(refusal.unknown_model(asked.model, served=(facts.model,)))
    prompt = content(asked, block=facts.pool.layout.block_tokens)
    if not prompt.tokens:
        raise RefusedError(refusal.empty_prompt())
    output = asked.max_tokens or 0
    if no := refusal.too_long(prompt_tokens=prompt.tokens, output_tokens=output, max_model_len=server.max_model_len):
        raise RefusedError(no)
    if prompt.tokens == server.max_model_len:
        raise RefusedError(refusal.bad_parameter("max_tokens must be at least 1, got 0.", param="max_tokens", value=0))
    exchange = Exchange(
        id=f"{_PREFIX[face]}-{request_id}",
        created=int(time.time()),
        model=asked.model or facts.model,
        fingerprint=facts.fingerprint,
        wanted=asked,
        script=script(asked, arm=facts.arm, prompt_tokens=prompt.tokens, seed=seed),
        prompt_tokens=prompt.tokens,
        prompt_ids=tuple(token_ids(asked)) if asked.token_ids else None,
    )
    return Order(exchange=exchange, speaker=ChatFace(exchange) if face == "chat" else CompletionsFace(exchange), content=prompt.runs)
