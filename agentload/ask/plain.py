"""Ask endpoints for short streams, and compare the arms' greedy answers.

A KV cache of another dtype changes some answers; a broken one changes nearly all or empties them.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from agentload.ask.asker import Failed, attempt, bad_end, client, excess
from agentload.dispatch.answer import Parsed
from agentload.dispatch.fault import masked_word
from agentload.dispatch.framing import Framing
from agentload.dispatch.garbage import garbage
from agentload.dispatch.shapes import decode
from agentload.dispatch.sse import StreamParser, document, is_json
from agentload.endpoints.endpoint import Endpoint
from agentload.model.record import Record
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Json

TIMEOUT_S: Final = 600.0
PROMPTS: Final = 8
TOKENS: Final = 512
OUTPUT: Final = 24  # enough tokens to recognise one that is repeated without end
GIVEN_UP: Final = 2
"""Failures in a row after which a server is asked nothing more."""
# Prompts; on fewer, two sound caches of an unsure model may differ everywhere by chance.
ENOUGH: Final = 4


class StreamAnswer(Record):
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
        began_ns = time.monotonic_ns()
        stream, body = StreamParser(), bytearray()
        create = self._client.chat.completions.with_streaming_response.create
        async with asyncio.timeout(self._timeout_s), create(**wanted) as response:
            kind = response.headers.get("content-type", "").lower()
            is_stream = not kind or "event-stream" in kind
            async for data in response.iter_bytes():
                body += data
                if is_stream:
                    stream.feed(time.monotonic_ns(), data)
        if not is_stream:
            return Failed(error=_no_stream(kind, body))
        parsed = stream.end(time.monotonic_ns())
        text = parsed.thinking + parsed.text
        why = _wrong(parsed, text, wanted["max_tokens"])
        if why is not None:
            return Failed(error=why)
        return StreamAnswer(
            text=text,
            ttft_ms=None if parsed.first_ns is None else (parsed.first_ns - began_ns) / 1e6,
            prompt_tokens=parsed.prompt_tokens,
            cached_tokens=parsed.cached_tokens,
            token_ids=tuple(_token_ids(body)),
        )


def _no_stream(kind: str, body: bytes | bytearray) -> str:
    """Return the error that an answer of another type holds, or else its type."""
    found = document(body).fault if "json" in kind else None
    if found:
        return found.text
    return f"the answer is of type '{masked_word(kind)}', and no stream"


def _wrong(parsed: Parsed, text: str, most_tokens: int) -> str | None:
    """Return why a stream is no answer, by the rules of timed ones; None if it is one."""
    if parsed.fault is not None:
        return parsed.fault.text
    if parsed.unreadable is not None:
        return parsed.unreadable
    # A count of "one token a chunk" is assumed, and proves nothing.
    tokens = None if parsed.token_rule == "one_a_chunk" else parsed.output_tokens
    # llama.cpp answers a prompt that is too long with no token at all
    if not text and not tokens:
        return "the answer holds no token"
    if parsed.finish_reason is None and not parsed.has_end_mark:
        return "the answer has no finish_reason"
    return bad_end(parsed.finish_reason) or excess(text, tokens, most_tokens)


def _token_ids(body: bytes | bytearray) -> Iterator[int]:
    """Yield the token ids that a readable stream lists, which its parser only counts."""
    framing = Framing()
    for payload in (*framing.feed(bytes(body)), *framing.end()):
        if is_json(payload):
            for choice in decode(payload).choices or ():
                yield from choice.token_ids or ()


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
    is_answering: bool = field(default=True, compare=False)
    """Whether the arm answered any prompt, also one that the reference did not."""
    is_answered: bool = field(default=True, compare=False)
    """Whether the reference answered any."""


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
        said: list[StreamAnswer | None] = []
        for number in range(prompts):
            context = (Segment(role="user", tokens=TOKENS, key=f"agree{number}"),)
            messages = json.loads(renderer.render(context, salt="agree").messages)
            answer = await plain.stream(messages, output_tokens=output_tokens)
            said.append(answer if isinstance(answer, StreamAnswer) else None)
            if said[-GIVEN_UP:] == [None] * GIVEN_UP:
                break
    return (*said, *[None] * (prompts - len(said)))


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
        is_answering=any(own),
        is_answered=any(base),
    )
