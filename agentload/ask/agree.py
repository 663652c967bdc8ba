"""Compare the arms' first tokens: a KV cache of another dtype shifts some answers, a broken one shifts nearly all or makes them empty."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.ask.plain import Plain, Streamed
from agentload.endpoints.endpoint import Endpoint
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer

PROMPTS: Final = 8
TOKENS: Final = 512
OUTPUT: Final = 8


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


async def agreement(
    reference: Endpoint, arms: Sequence[Endpoint], models: Sequence[str], *, tokenizer: Tokenizer | None = None, prompts: int = PROMPTS
) -> tuple[Agreement, ...]:
    """Ask *reference* and then every arm the same prompts; *models* are theirs, the reference's first."""
    renderer = Renderer(seed=1, tokenizer=tokenizer or WORD_TOKENS)
    asked = [
        json.loads(renderer.render((Segment(role="user", tokens=TOKENS, key=f"agree{number}"),), salt="agree").messages)
        for number in range(prompts)
    ]
    base, *others = await asyncio.gather(
        *(_answers(endpoint, model, asked) for endpoint, model in zip((reference, *arms), models, strict=True))
    )
    return tuple(_compared(endpoint.name, base, own) for endpoint, own in zip(arms, others, strict=True))


async def _answers(endpoint: Endpoint, model: str, asked: Sequence[list[dict[str, object]]]) -> list[tuple[object, ...] | None]:
    async with Plain(endpoint, model) as plain:
        answers = [await plain.stream(messages, output_tokens=OUTPUT) for messages in asked]
    return [_tokens(answer) if isinstance(answer, Streamed) else None for answer in answers]


def _tokens(answer: Streamed) -> tuple[object, ...]:
    return answer.token_ids or tuple(answer.text.split(" "))


def _compared(arm: str, base: Sequence[tuple[object, ...] | None], own: Sequence[tuple[object, ...] | None]) -> Agreement:
    pairs = [(one, other) for one, other in zip(base, own, strict=True) if one is not None and other is not None]
    return Agreement(
        arm=arm,
        prompts=len(pairs),
        first_token=sum(one[:1] == other[:1] for one, other in pairs),
        whole=sum(one == other for one, other in pairs),
        failed=len(base) - len(pairs),
    )
