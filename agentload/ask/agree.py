"""Compare the arms' first tokens: a KV cache of another dtype shifts some answers, a broken one shifts nearly all or makes them empty."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.ask.plain import Plain, Streamed, tokens_of
from agentload.endpoints.endpoint import Endpoint
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.replay.garbage import garbage

PROMPTS: Final = 8
TOKENS: Final = 512
OUTPUT: Final = 24  # tokens: enough to tell one that is repeated without end
ENOUGH: Final = 4  # prompts: on fewer, chance alone parts two sound caches of a model that is in doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How an arm's greedy answers compare with the reference's."""

    arm: str
    prompts: int
    first_token: int
    """Prompts whose first token is the same."""
    whole: int
    """Prompts whose whole short answer is the same."""
    failed: int
    wrong: str | None = None
    """What shows that the cache is broken; None: nothing does."""


async def agreement(
    reference: Endpoint, arms: Sequence[Endpoint], models: Sequence[str], *, tokenizer: Tokenizer | None = None, prompts: int = PROMPTS
) -> tuple[Agreement, ...]:
    """Ask *reference* and then every arm the same prompts; *models* are theirs, the reference's first."""
    base, *others = await asyncio.gather(
        *(
            answers(endpoint, model, tokenizer=tokenizer, prompts=prompts)
            for endpoint, model in zip((reference, *arms), models, strict=True)
        )
    )
    return tuple(compared(endpoint.name, base, own) for endpoint, own in zip(arms, others, strict=True))


async def answers(
    endpoint: Endpoint, model: str, *, tokenizer: Tokenizer | None = None, prompts: int = PROMPTS, output_tokens: int = OUTPUT
) -> tuple[Streamed | None, ...]:
    """Ask an endpoint the prompts that all are compared by; None is a request that failed."""
    renderer = Renderer(seed=1, tokenizer=tokenizer or WORD_TOKENS)
    async with Plain(endpoint, model) as plain:
        said = []
        for number in range(prompts):
            context = (Segment(role="user", tokens=TOKENS, key=f"agree{number}"),)
            messages = json.loads(renderer.render(context, salt="agree").messages)
            said.append(await plain.stream(messages, output_tokens=output_tokens))
    return tuple(answer if isinstance(answer, Streamed) else None for answer in said)


def compared(arm: str, base: Sequence[Streamed | None], own: Sequence[Streamed | None]) -> Agreement:
    """Count the prompts on which an arm says what the reference says."""
    both = [(one, other) for one, other in zip(base, own, strict=True) if one is not None and other is not None]
    pairs = [(tokens_of(one), tokens_of(other)) for one, other in both]
    first_token = sum(one[:1] == other[:1] for one, other in pairs)
    # What the reference says is the model: a random one repeats itself, whatever its cache.
    garbled = next((found for one, other in both if (found := garbage(other.text)) and garbage(one.text) is None), None)
    strange = "no first token is that of the reference" if len(pairs) >= ENOUGH and first_token == 0 else None
    return Agreement(
        arm=arm,
        prompts=len(pairs),
        first_token=first_token,
        whole=sum(one == other for one, other in pairs),
        failed=len(base) - len(pairs),
        wrong=garbled or strange,
    )
