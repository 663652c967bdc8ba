"""What an evaluation costs before anything is asked: questions, tokens, and roughly how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentload.experiment.asking.evaluation import Questions
from agentload.experiment.layout.cost import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S

OUTPUT_TOKENS: Final = 64
"""A typical answer: most caps are far above what is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Figures of a whole evaluation."""

    items: int
    questions: int
    """Items times repetitions times endpoints."""
    prompt_tokens: int
    minutes: float
    assumed: str


def cost(asked: Questions, *, arms: int, concurrency: int, thinking_tokens: int) -> Cost:
    """Add up what is asked. Prompts queue for one GPU, answers share it; each arm has its own."""
    questions = asked.questions()
    prompt = sum(each.context for each in questions)
    output = len(questions) * (OUTPUT_TOKENS + thinking_tokens)
    # An item is asked of one arm after the other, so that arms wait for each other only where few items are in flight.
    seconds = (prompt / ASSUMED_PREFILL_TOKENS_PER_S + output * ASSUMED_TOKEN_S / max(1, concurrency / arms)) * max(1.0, arms / concurrency)
    return Cost(
        items=len({(each.task, each.context, each.item) for each in questions}),
        questions=len(questions) * arms,
        prompt_tokens=prompt * arms,
        minutes=seconds / 60,
        assumed=f"{ASSUMED_PREFILL_TOKENS_PER_S:,.0f} prompt tokens a second, {ASSUMED_TOKEN_S * 1000:g} ms a token, answers of "
        f"{OUTPUT_TOKENS}",
    )
