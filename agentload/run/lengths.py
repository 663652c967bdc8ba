"""How many tokens of the servers a task's texts cost: measured with two short prompts a task, or counted with a tokenizer from a file."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.ask.asker import Answered, Asker
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.errors import EndpointError
from agentload.prompts.count import count
from agentload.prompts.local import from_file
from agentload.prompts.tokenizer import Exactness, Part, Tokenizer
from agentload.prompts.words import WORDS
from agentload.replay.naming import named
from agentload.tasks import catalog

LENGTHS: Final = (2048, 6144)
SPARE: Final = 1.005
"""What the line may be wrong by: a request that is a token too long for the window is refused."""
_DEPTH: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTokens:
    """A task's tokens as a line over its words: what the template adds, and what a word of such texts costs."""

    around: int
    a_word: float
    exact: Exactness = "ratio"
    counts: Exactness = "ratio"
    words: tuple[str, ...] = WORDS

    def frame(self, part: Part) -> int:
        """Count what the template adds once a prompt."""
        return self.around if part == "prompt" else 0

    def fit(self, tokens: int) -> int:
        """Return how many words come nearest to this many tokens."""
        return round(tokens / self.a_word)

    def cost(self, words: int) -> int:
        """Count the tokens of this many words."""
        return round(words * self.a_word)

    def count(self, text: str) -> int:
        """Estimate the tokens of any text of the task."""
        return math.ceil(len(text.split()) * self.a_word)


def from_tokenizer(path: Path, tasks: Sequence[str]) -> dict[str, Tokenizer]:
    """Count with the tokenizer in a file. Raises `UsageError`."""
    return dict.fromkeys(tasks, from_file(path))


async def measured(endpoint: Endpoint, tasks: Sequence[str], *, seed: int) -> dict[str, Tokenizer]:
    """Have the server count two short prompts a task. Raises EndpointError where it does not answer or does not count."""
    async with Asker(endpoint, served_model(endpoint, await identify(endpoint))) as asker:
        return dict(zip(tasks, await asyncio.gather(*(_measured(asker, endpoint.name, task, seed) for task in tasks)), strict=True))


def line(words: Sequence[int], tokens: Sequence[int]) -> ScaledTokens:
    """Lay a line through two prompts; rounded, so that a run that goes on makes the same bytes."""
    slope = (tokens[1] - tokens[0]) / (words[1] - words[0])
    return ScaledTokens(around=max(0, math.ceil(tokens[0] - slope * words[0])), a_word=math.ceil(1000 * SPARE * max(0.1, slope)) / 1000)


def described(lengths: Mapping[str, Tokenizer]) -> dict[str, object]:
    """Say what lengths rest on, for the record of the run."""
    return {task: [each.around, each.a_word] if isinstance(each, ScaledTokens) else each.exact for task, each in lengths.items()}


async def _measured(asker: Asker, endpoint: str, name: str, seed: int) -> ScaledTokens:
    task = catalog.task(name)
    words, tokens = [], []
    for context in LENGTHS:
        item = task.item(seed=seed, context=context, depth=_DEPTH if task.has_depth else None, number=0)
        reply = await asker.ask(item.messages, tools=item.tools, output_tokens=1, seed=seed, request_id=named("length", name, str(context)))
        if not isinstance(reply, Answered):
            raise EndpointError(f"{endpoint}: cannot measure how long '{name}' is: {reply.error}", hint="--tokenizer tokenizer.json")
        if reply.prompt_tokens is None:
            raise EndpointError(f"{endpoint}: does not say how many tokens a prompt has", hint="--tokenizer tokenizer.json")
        words.append(count(item.messages, item.tools))
        tokens.append(reply.prompt_tokens)
    return line(words, tokens)
