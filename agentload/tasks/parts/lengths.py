"""Fill a context up to its length: how many pieces of a kind fit beside what is said around them."""

from __future__ import annotations

from collections.abc import Sequence

from agentload.errors import UsageError
from agentload.prompts.tokenizer import Tokenizer


def room(tokenizer: Tokenizer, context: int, *, output: int, around: Sequence[str]) -> int:
    """Return the tokens that are left for a haystack in one user message: *context* holds prompt and answer."""
    frame = tokenizer.frame("prompt") + tokenizer.frame("systemless") + tokenizer.frame("user")
    return context - output - frame - sum(tokenizer.count(text) for text in around)


def fitting(tokenizer: Tokenizer, tokens: int, sample: Sequence[str], *, joint: str = "\n", frame: int = 0) -> int:
    """Return how many pieces like those of *sample* fit into this many tokens; raise `UsageError` if not even one does."""
    each = tokenizer.count(joint.join(sample)) / len(sample) + frame
    count = int(tokens / each)
    if count < 1:
        raise UsageError(f"{max(0, tokens)} tokens beside question and answer are too short for this task", hint="--contexts 4k..128k")
    return count


def place(depth: float | None, count: int) -> int:
    """Return before which of *count* pieces something at this relative depth stands."""
    return round((0.5 if depth is None else depth) * count)
