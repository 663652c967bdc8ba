"""Ask one endpoint for a short stream: its text, its first tokens, what its usage says, when it began."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from agentload.ask.asker import Failed
from agentload.ask.client import client, told
from agentload.endpoints.endpoint import Endpoint
from agentload.tasks import Json

TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What a short stream showed; its times are a probe's, not a measurement's."""

    text: str
    ttft_ms: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    token_ids: tuple[int, ...]


def tokens_of(answer: Streamed) -> tuple[object, ...]:
    """Return what an answer is compared by: its token ids, or its words where the server does not tell them."""
    return answer.token_ids or tuple(answer.text.split(" "))


class Plain:
    """Speak to one endpoint; use it as an asynchronous context."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._model = model
        # Greedy answers are compared with each other, whatever the arms file draws by.
        own = {name: value for name, value in endpoint.extra_body.items() if name != "temperature"}
        ours = {"ignore_eos": endpoint.force_lengths, "return_token_ids": endpoint.counting == "token_ids"}
        self._extra = {**{name: True for name, is_asked in ours.items() if is_asked}, **own}
        self._secrets = endpoint.secrets()
        self._client = client(endpoint, timeout_s=TIMEOUT_S, retries=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def stream(self, messages: Sequence[Json], *, output_tokens: int) -> Streamed | Failed:
        """Ask greedily for *output_tokens* tokens."""
        import openai

        wanted: dict[str, Any] = {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": output_tokens}
        wanted |= {"stream": True, "stream_options": {"include_usage": True}, "extra_body": self._extra}
        text, ids, first_ms, usage = "", list[int](), None, None
        began = time.monotonic()
        try:
            async for chunk in await self._client.chat.completions.create(**wanted):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    ids += getattr(choice, "token_ids", None) or []
                    text += choice.delta.content or getattr(choice.delta, "reasoning", None) or ""
                    if first_ms is None and (ids or text):
                        first_ms = (time.monotonic() - began) * 1e3
        except openai.APIStatusError as error:
            return Failed(error=told(error, self._secrets), http_status=error.status_code)
        except openai.OpenAIError as error:
            return Failed(error=told(error, self._secrets))
        if first_ms is None and not (usage and usage.completion_tokens):  # llama.cpp's way to say that a prompt is too long
            return Failed(error="the answer holds no token")
        details = usage.prompt_tokens_details if usage else None
        return Streamed(
            text=text,
            ttft_ms=first_ms,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=details.cached_tokens if details else None,
            token_ids=tuple(ids),
        )
