"""Ask endpoints for short streams, and compare the arms' greedy answers.

A KV cache of another dtype changes some answers; a broken one changes nearly all or empties them.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from agentload.ask.asker import Failed, attempt, client
from agentload.dispatch.garbage import garbage
from agentload.endpoints.endpoint import Endpoint
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Json

TIMEOUT_S: Final = 600.0
PROMPTS: Final = 8
TOKENS: Final = 512
OUTPUT: Final = 24  # enough tokens to recognise one that is repeated without end
# Prompts; on fewer, two sound caches of an unsure model may differ everywhere by chance.
ENOUGH: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAnswer:
    """What a short stream showed; its times are those of a probe, not of a measurement."""

    text: str
    ttft_ms: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    token_ids: tuple[int, ...]


def tokens_of(answer: StreamAnswer) -> tuple[object, ...]:
    """Return what an answer is compared by: its token ids, or else its words."""
    return answer.token_ids or tuple(answer.text.split(" "))


class Plain:
    """Ask one endpoint for streams; use as an asynchronous context manager."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._model = model
        # Greedy answers are compared with each other, so a temperature in the arms file is ignored.
        own = {name: value for name, value in endpoint.extra_body.items() if name != "temperature"}
        ours = {
            "ignore_eos": endpoint.force_lengths,
            "return_token_ids": endpoint.counting == "token_ids",
        }
        self._extra = {**{name: True for name, is_asked in ours.items() if is_asked}, **own}
        self._secrets = endpoint.secrets()
        self._timeout_s = endpoint.answer_s or TIMEOUT_S
        self._client = client(endpoint, timeout_s=self._timeout_s, retries=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def stream(
        self, messages: Sequence[Json], *, output_tokens: int
    ) -> StreamAnswer | Failed:
        """Ask greedily for *output_tokens* tokens."""
        wanted = {
            "model": self._model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": self._extra,
        }
        return await attempt(self._stream(wanted), self._secrets)

    async def _stream(self, wanted: Mapping[str, Any]) -> StreamAnswer | Failed:
        answer = _Answer()
        async with asyncio.timeout(self._timeout_s):
            async for chunk in await self._client.chat.completions.create(**wanted):
                answer.add(chunk)
        return answer.whole()


class _Answer:
    """One stream as far as it has come."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._first_ms: float | None = None
        self._text = ""
        self._ids: list[int] = []
        self._usage: Any = None

    # Any: what a server sends need not match the SDK's types.
    def add(self, chunk: Any) -> None:  # noqa: ANN401
        """Add a chunk."""
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._ids += getattr(choice, "token_ids", None) or []
            self._text += choice.delta.content or getattr(choice.delta, "reasoning", None) or ""
            if self._first_ms is None and (self._ids or self._text):
                self._first_ms = (time.monotonic() - self._began_s) * 1e3

    def whole(self) -> StreamAnswer | Failed:
        """Return the answer of a stream that has ended."""
        usage = self._usage
        # llama.cpp answers a prompt that is too long with no token at all
        if self._first_ms is None and not (usage and usage.completion_tokens):
            return Failed(error="the answer holds no token")
        details = usage.prompt_tokens_details if usage else None
        return StreamAnswer(
            text=self._text,
            ttft_ms=self._first_ms,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=details.cached_tokens if details else None,
            token_ids=tuple(self._ids),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgreement:
    """How an arm's greedy answers compare with the reference's."""

    arm: str
    prompts: int
    first_token: int
    """Prompts whose first token is the same."""
    whole: int
    """Prompts whose whole short answer is the same."""
    failed: int
    wrong: str | None = None
    """Evidence that the cache is broken; None if there is none."""


async def agreement(
    reference: Endpoint,
    arms: Sequence[Endpoint],
    models: Sequence[str],
    *,
    tokenizer: Tokenizer | None = None,
    prompts: int = PROMPTS,
) -> tuple[AnswerAgreement, ...]:
    """Ask *reference* and every arm the same prompts, and compare their answers.

    *models* are the names of their models, the reference's first.
    """
    base, *others = await asyncio.gather(
        *(
            answers(endpoint, model, tokenizer=tokenizer, prompts=prompts)
            for endpoint, model in zip((reference, *arms), models, strict=True)
        )
    )
    return tuple(
        answer_agreement(endpoint.name, base, own)
        for endpoint, own in zip(arms, others, strict=True)
    )


async def answers(
    endpoint: Endpoint,
    model: str,
    *,
    tokenizer: Tokenizer | None = None,
    prompts: int = PROMPTS,
    output_tokens: int = OUTPUT,
) -> tuple[StreamAnswer | None, ...]:
    """Ask an endpoint the prompts that all arms are compared by; None for a failed request."""
    renderer = Renderer(seed=1, tokenizer=tokenizer or WORD_TOKENS)
    async with Plain(endpoint, model) as plain:
        said = []
        for number in range(prompts):
            context = (Segment(role="user", tokens=TOKENS, key=f"agree{number}"),)
            messages = json.loads(renderer.render(context, salt="agree").messages)
            said.append(await plain.stream(messages, output_tokens=output_tokens))
    return tuple(answer if isinstance(answer, StreamAnswer) else None for answer in said)


def answer_agreement(
    arm: str, base: Sequence[StreamAnswer | None], own: Sequence[StreamAnswer | None]
) -> AnswerAgreement:
    """Count the prompts on which an arm answers as the reference does."""
    both = [
        (one, other)
        for one, other in zip(base, own, strict=True)
        if one is not None and other is not None
    ]
    pairs = [(tokens_of(one), tokens_of(other)) for one, other in both]
    first_token = sum(one[:1] == other[:1] for one, other in pairs)
    # Garbage that the reference says too comes from the model: a random one repeats itself.
    garbled = next(
        (
            found
            for one, other in both
            if (found := garbage(other.text)) and garbage(one.text) is None
        ),
        None,
    )
    strange = (
        "no first token is that of the reference"
        if len(pairs) >= ENOUGH and first_token == 0
        else None
    )
    return AnswerAgreement(
        arm=arm,
        prompts=len(pairs),
        first_token=first_token,
        whole=sum(one == other for one, other in pairs),
        failed=len(base) - len(pairs),
        wrong=garbled or strange,
    )
