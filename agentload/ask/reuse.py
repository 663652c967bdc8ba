"""Ask the same long prompt twice: a prefix cache that works answers the second from its cache, and faster."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agentload.ask.asker import Failed
from agentload.ask.plain import Plain, Streamed, tokens_of
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer

TOKENS: Final = 2048  # some blocks of the largest size that servers use
OUTPUT: Final = 4
HIT: Final = 0.5  # of the prompt: whole blocks are cached, and never the last
LOOK_S: Final = 1.0

Verdict: TypeAlias = Literal["hit", "no hit", "off", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What two equal requests showed. Absent is None."""

    arm: str
    verdict: Verdict
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the second request, as its usage says."""
    counted_hits: float | None = None
    """Tokens, as the server's counters say."""
    first_ttft_ms: float | None = None
    second_ttft_ms: float | None = None
    is_same: bool | None = None
    """Both answers are equal."""
    error: str | None = None

    def detail(self) -> str:
        """Return the figures as one line."""
        if self.error is not None:
            return self.error
        ms = " → ".join("–" if each is None else f"{each:.0f}" for each in (self.first_ttft_ms, self.second_ttft_ms))
        cached = "not told" if self.cached_tokens is None else f"{self.cached_tokens:,}"
        hits = "not told" if self.counted_hits is None else f"{self.counted_hits:,.0f}"
        return f"{self.prompt_tokens} tokens; cached {cached}, counters {hits}; TTFT {ms} ms"


async def reuse(endpoint: Endpoint, model: str, *, tokenizer: Tokenizer | None = None, tokens: int = TOKENS) -> Reuse:
    """Send one prompt twice to *endpoint* and say whether the second was answered from the prefix cache."""
    before = await identify(endpoint)
    renderer = Renderer(seed=0, tokenizer=tokenizer or WORD_TOKENS)
    context = (Segment(role="user", tokens=tokens, key="reuse"),)
    # New content in every probe: an earlier one must not be what is hit.
    messages = json.loads(renderer.render(context, salt=f"reuse {time.time_ns()}").messages)
    async with Plain(endpoint, model) as plain:
        answers = [await plain.stream(messages, output_tokens=OUTPUT) for _ in range(2)]
    failed = next((each for each in answers if isinstance(each, Failed)), None)
    if failed is not None:
        return Reuse(arm=endpoint.name, verdict="failed", error=failed.error)
    first, second = (each for each in answers if isinstance(each, Streamed))
    after = await identify(endpoint, known=before)
    hits = None
    if "prefix_hits" in before.counters and "prefix_hits" in after.counters:
        hits = after.counters["prefix_hits"] - before.counters["prefix_hits"]
    return Reuse(
        arm=endpoint.name,
        verdict=_verdict(second, hits, is_on=str(after.facts()["prefix_caching"]).lower() != "false"),
        prompt_tokens=second.prompt_tokens,
        cached_tokens=second.cached_tokens,
        counted_hits=hits,
        first_ttft_ms=first.ttft_ms,
        second_ttft_ms=second.ttft_ms,
        is_same=tokens_of(first) == tokens_of(second),
    )


def _verdict(second: Streamed, hits: float | None, *, is_on: bool) -> Verdict:
    if not is_on:
        return "off"
    wanted = HIT * (second.prompt_tokens or TOKENS)
    return "hit" if max(second.cached_tokens or 0, hits or 0.0) >= wanted else "no hit"
