"""Ask a long prompt twice: a prefix cache that works answers the second from its cache, and faster.

Another arm must not have it: one that does is the same server under another URL, or both stand behind one router.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agentload.ask.asker import Failed
from agentload.ask.plain import Plain, Streamed, tokens_of
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Json

TOKENS: Final = 2048  # some blocks of the largest size that servers use
OUTPUT: Final = 4
HIT: Final = 0.5  # of the prompt: whole blocks are cached, and never the last
SETTLE_S: Final = 1.0  # counters may lag behind the answer
LOOK_S: Final = 0.1

Verdict: TypeAlias = Literal["hit", "no hit", "not told", "off", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What equal requests showed. Absent is None."""

    arm: str
    verdict: Verdict
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the last request, as its usage says."""
    counted_hits: float | None = None
    """Tokens, as the server's counters say; None also where others asked meanwhile."""
    first_ttft_ms: float | None = None
    second_ttft_ms: float | None = None
    is_same: bool | None = None
    """Both answers are equal."""
    error: str | None = None

    def detail(self) -> str:
        """Return the figures as one line."""
        if self.error is not None:
            return self.error
        cached = "not told" if self.cached_tokens is None else f"{self.cached_tokens:,}"
        hits = "not told" if self.counted_hits is None else f"{self.counted_hits:,.0f}"
        prompt = "prompt not counted" if self.prompt_tokens is None else f"{self.prompt_tokens} tokens"
        return f"{prompt}; cached {cached}, counters {hits}; TTFT {self._ttft()}"

    def _ttft(self) -> str:
        told = [each for each in (self.first_ttft_ms, self.second_ttft_ms) if each is not None]
        times = f", {told[0] / told[1]:.1f} times as fast" if len(told) == 2 and told[1] > 0 else ""
        return f"{' → '.join(f'{each:.0f}' for each in told) or '–'} ms{times}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    answers: tuple[Streamed | Failed, ...]
    hits: float | None
    is_on: bool

    def reuse(self, arm: str, *, tokens: int) -> Reuse:
        failed = next((each for each in self.answers if isinstance(each, Failed)), None)
        if failed is not None:
            return Reuse(arm=arm, verdict="failed", error=failed.error)
        streamed = [each for each in self.answers if isinstance(each, Streamed)]
        first, last = streamed[0], streamed[-1]
        return Reuse(
            arm=arm,
            verdict=_verdict(last, self.hits, is_on=self.is_on, tokens=tokens),
            prompt_tokens=last.prompt_tokens,
            cached_tokens=last.cached_tokens,
            counted_hits=self.hits,
            first_ttft_ms=first.ttft_ms,
            second_ttft_ms=last.ttft_ms if len(streamed) > 1 else None,
            is_same=tokens_of(first) == tokens_of(last) if len(streamed) > 1 else None,
        )


async def reuse(endpoint: Endpoint, model: str, *, tokenizer: Tokenizer | None = None, tokens: int = TOKENS) -> Reuse:
    """Send one prompt twice to *endpoint* and say whether the second was answered from the prefix cache."""
    seen = await _seen(endpoint, model, _messages(tokenizer, tokens), times=2)
    return seen.reuse(endpoint.name, tokens=tokens)


async def crossed(
    arms: Sequence[Endpoint], models: Sequence[str], *, tokenizer: Tokenizer | None = None, tokens: int = TOKENS
) -> tuple[Reuse, ...]:
    """Send one prompt to one arm after the other; return what each but the first showed: a hit is the cache of another arm."""
    messages = _messages(tokenizer, tokens)
    seen = [(arm.name, await _seen(arm, model, messages, times=1)) for arm, model in zip(arms, models, strict=True)]
    return tuple(each.reuse(name, tokens=tokens) for name, each in seen[1:])


def _messages(tokenizer: Tokenizer | None, tokens: int) -> Sequence[Json]:
    renderer = Renderer(seed=0, tokenizer=tokenizer or WORD_TOKENS)
    context = (Segment(role="user", tokens=tokens, key="reuse"),)
    # New content in every probe: an earlier one must not be what is hit.
    found: Sequence[Json] = json.loads(renderer.render(context, salt=f"reuse {time.time_ns()}").messages)
    return found


async def _seen(endpoint: Endpoint, model: str, messages: Sequence[Json], *, times: int) -> _Seen:
    before = await identify(endpoint)
    async with Plain(endpoint, model) as plain:
        answers = tuple([await plain.stream(messages, output_tokens=OUTPUT) for _ in range(times)])
    if any(isinstance(each, Failed) for each in answers):
        return _Seen(answers=answers, hits=None, is_on=True)
    after = await _settled(endpoint, before, asked=times)
    is_alone = (_risen("requests_done", before, after) or 0) <= times
    hits = _risen("prefix_hits", before, after) if is_alone else None
    return _Seen(answers=answers, hits=hits, is_on=str(after.facts()["prefix_caching"]).lower() != "false")


async def _settled(endpoint: Endpoint, before: Identity, *, asked: int) -> Identity:
    """Ask who it is until its counters know of what was asked, where they count requests."""
    until = time.monotonic() + SETTLE_S
    while True:
        after = await identify(endpoint, known=before)
        done = _risen("requests_done", before, after)
        if done is None or done >= asked or time.monotonic() > until:
            return after
        await asyncio.sleep(LOOK_S)


def _risen(name: str, before: Identity, after: Identity) -> float | None:
    if name not in before.counters or name not in after.counters:
        return None
    return after.counters[name] - before.counters[name]


def _verdict(last: Streamed, hits: float | None, *, is_on: bool, tokens: int) -> Verdict:
    if not is_on:
        return "off"
    told = [each for each in (last.cached_tokens, hits) if each is not None]
    if not told:
        return "not told"
    return "hit" if max(told) >= HIT * (last.prompt_tokens or tokens) else "no hit"
