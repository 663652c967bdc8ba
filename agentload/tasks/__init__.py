"""Accuracy tasks: questions with one right answer, at
any context length; one task a file, found by its name.

A task is a module with a docstring (its help), `generate(rng, *, context, depth, tokenizer,
…) -> Item` and `grade(answer, item) -> Grade`. It may set `HAS_DEPTH = False` if its answer
has no single place in the context, and `VARIANTS`: options by the names (NAME or NAME-…) to
list it under. `parts` has what tasks share: drawing, filling a context to a length, grading.

An item is drawn from its seed alone and sent to every arm byte for byte, so answers
can be compared in pairs. It never exceeds its context together with its answer cap,
and the cap is too short for an echo of the context to contain the answer.
"""

from collections.abc import Mapping
from typing import TypeAlias

from agentload.model.record import Record

Json: TypeAlias = Mapping[str, object]
"""A message or a tool schema of the OpenAI API."""


class Item(Record):
    """A question, sent to every arm byte for byte."""

    messages: tuple[Json, ...]
    wanted: tuple[str, ...]
    """What a right answer contains, for the task's grader."""
    output_tokens: int
    """Cap of the answer: too short for an echo of the context to contain it."""
    tools: tuple[Json, ...] = ()


class Grade(Record):
    """The grade of an answer."""

    score: float
    """In 0..1, by the task's published rule if it has one."""
    right: bool
    """Whether it is exactly the right answer: stricter than the score."""


NOTHING = Grade(score=0.0, right=False)
"""The grade of an empty answer or an echo of the context."""


def prompt(text: str) -> tuple[Json, ...]:
    """Return a conversation of one user message."""
    return ({"role": "user", "content": text},)


def texts(item: Item) -> tuple[str, ...]:
    """Return the texts of an item's messages, in order."""
    contents = (message.get("content") for message in item.messages)
    return tuple(content for content in contents if isinstance(content, str))
