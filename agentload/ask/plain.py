"""Ask endpoints for short streams, and compare the arms' greedy answers.

A KV cache of another dtype changes some answers; a broken one changes nearly all or empties them.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from agentload.ask.asker import Failed, attempt, bad_end, client, excess
from agentload.dispatch.fault import Fault, body_fault
from agentload.dispatch.framing import Framing
from agentload.dispatch.garbage import garbage
from agentload.dispatch.shapes import Delta, Event, TokenUsage, decodable, decode
from agentload.endpoints.endpoint import Endpoint
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Json

TIMEOUT_S: Final = 600.0
DONE: Final = b"[DONE]"
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
        answer = _Answer(wanted["max_tokens"])
        create = self._client.chat.completions.with_streaming_response.create
        async with asyncio.timeout(self._timeout_s), create(**wanted) as response:
            async for data in response.iter_bytes():
                answer.add(data)
        return answer.whole()


class _Answer:
    """One stream as far as it has come, read as timed ones are: the SDK takes any type for any."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._began_s = time.monotonic()
        self._first_ms: float | None = None
        self._framing = Framing()
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._usage = TokenUsage()
        self._fault: Fault | None = None
        self._ended_by: str | None = None

    def add(self, data: bytes) -> None:
        """Take the next bytes; raises `OverlongError`, or one of `UNREADABLE`."""
        for payload in self._framing.feed(data):
            if payload and payload != DONE:
                self._event(decode(decodable(payload)), payload)

    def _event(self, event: Event, payload: bytes | bytearray) -> None:
        if event.is_fault:
            self._fault = self._fault or body_fault(payload)
        self._usage = event.usage or self._usage
        for choice in event.choices or ():
            delta = choice.delta or Delta()
            text = delta.content or delta.reasoning
            if text:
                self._texts.append(text)
            self._ids += choice.token_ids or ()
            self._ended_by = choice.finish_reason or self._ended_by
            if self._first_ms is None and (text or self._ids):
                self._first_ms = (time.monotonic() - self._began_s) * 1e3

    def whole(self) -> StreamAnswer | Failed:
        """Return the answer of a stream that has ended."""
        usage = self._usage
        # llama.cpp answers a prompt that is too long with no token at all
        is_empty = self._first_ms is None and not usage.completion_tokens
        nothing = "the answer holds no token" if is_empty else None
        text = "".join(self._texts)
        why = self._fault.text if self._fault else usage.contradiction or nothing
        why = why or bad_end(self._ended_by)
        why = why or excess(text, usage.completion_tokens, self._most_tokens)
        if why is not None:
            return Failed(error=why)
        return StreamAnswer(
            text=text,
            ttft_ms=self._first_ms,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
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
