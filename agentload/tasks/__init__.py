"""Ask what has one right answer, at any length of context: a task a file, found by its name.

A task is a module with a docstring (its help), `generate(rng, *, context, depth, tokenizer, …) -> Item` and
`grade(answer, item) -> Grade`. It may have `HAS_DEPTH = False`, where what is asked for stands at no place of its own, and `VARIANTS`:
options by the names (NAME or NAME-…) to list it under. What tasks have in common is in `parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = Mapping[str, object]
"""A message or a tool's schema, as the OpenAI API spells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A question as it is sent to every arm, byte for byte."""

    messages: tuple[Json, ...]
    wanted: tuple[str, ...]
    """What a right answer holds; its task's grader knows how."""
    output_tokens: int
    """Cap of the answer: too short for an echo of the context to come by what is asked."""
    tools: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How good an answer is."""

    score: float
    """In 0..1, by the task's published rule where it has one."""
    right: bool
    """All that was asked and nothing else: stricter than the score."""


NOTHING = Grade(score=0.0, right=False)
"""The grade of an answer that says nothing, or repeats the context instead of answering."""


def prompt(text: str) -> tuple[Json, ...]:
    """Return a conversation of one user message."""
    return ({"role": "user", "content": text},)


def texts(item: Item) -> tuple[str, ...]:
    """Return the texts of an item's messages, in order."""
    return tuple(content for message in item.messages if isinstance(content := message.get("content"), str))
