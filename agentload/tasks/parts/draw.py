"""Draw the content of tasks, fill contexts to a length, and share a context among questions.

Equal seeds draw equal content on every Python.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import shake_256
from itertools import cycle, islice
from random import Random
from typing import Final, TypeVar

import numpy as np

from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.prompts.tokenizer import Tokenizer
from agentload.prompts.words import WORDS
from agentload.tasks import Item, Json, prompt, texts

T = TypeVar("T")

SENTENCES: Final = (
    "The grass is green.",
    "The sky is blue.",
    "The sun is yellow.",
    "Here we go.",
    "There and back again.",
)
_WORD: Final = np.array(WORDS, dtype=object)
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def below(rng: Random, bound: int) -> int:
    """Draw a whole number from 0 up to, not including, *bound*."""
    return min(int(rng.random() * bound), bound - 1)


def choice(rng: Random, options: Sequence[T]) -> T:
    """Draw one of the options."""
    return options[below(rng, len(options))]


def permutation(rng: Random, options: Sequence[T]) -> list[T]:
    """Return the options in random order."""
    keys = [rng.random() for _ in options]
    order = sorted(range(len(options)), key=keys.__getitem__)
    return [options[place] for place in order]


def pairs(rng: Random, count: int, *, joint: str = "-") -> list[str]:
    """Draw names of two words; among very many some repeat."""
    words = zip(_words(rng, count), _words(rng, count), strict=True)
    return [f"{left}{joint}{right}" for left, right in words]


def _words(rng: Random, count: int) -> list[str]:
    """Draw this many words."""
    drawn: list[str] = _WORD[np.frombuffer(_bytes(rng, count), np.uint8)].tolist()
    return drawn


def numbers(rng: Random, count: int, *, digits: int = 7) -> list[str]:
    """Draw numbers of this many digits, the first of them not 0."""
    least = 10 ** (digits - 1)
    drawn = np.frombuffer(_bytes(rng, 8 * count), "<u8")
    return list(map(str, (least + drawn % (9 * least)).tolist()))


def uuids(rng: Random, count: int) -> list[str]:
    """Draw identifiers shaped like random UUIDs."""
    text = _bytes(rng, 16 * count).hex()
    return [_shaped_as_uuid(text[at : at + 32]) for at in range(0, len(text), 32)]


def _shaped_as_uuid(digits: str) -> str:
    """Set 32 hexadecimal digits as a random UUID, two of them as its version and variant."""
    version = f"4{digits[13:16]}"
    variant = f"a{digits[17:20]}"
    return f"{digits[:8]}-{digits[8:12]}-{version}-{variant}-{digits[20:]}"


def letters(rng: Random, count: int) -> str:
    """Draw this many capital letters."""
    return "".join(_LETTERS[below(rng, 26)] for _ in range(count))


def different(drawn: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the drawn texts that are not taken."""
    barred = frozenset(taken)
    return [each for each in drawn if each not in barred]


def _bytes(rng: Random, count: int) -> bytes:
    """Return random bytes by one draw, which seeds a whole stream.

    A draw for each of tens of thousands of names would cost microseconds each.
    """
    return shake_256(rng.random().hex().encode()).digest(count)


def room(tokenizer: Tokenizer, context: int, *, output: int, around: Sequence[str]) -> int:
    """Return the tokens left for a haystack in one user message.

    *context* includes prompt and answer.
    """
    frame = tokenizer.frame("prompt") + tokenizer.frame("systemless") + tokenizer.frame("user")
    return context - output - frame - sum(map(tokenizer.count, around))


def pieces_that_fit(
    tokenizer: Tokenizer, tokens: int, sample: Sequence[str], *, joint: str = "\n", frame: int = 0
) -> int:
    """Return how many pieces like *sample* fit into *tokens*; raise `UsageError` if none."""
    each = tokenizer.count(joint.join(sample)) / len(sample) + frame
    count = int(tokens / each)
    if count < 1:
        raise UsageError(
            f"{max(0, tokens)} tokens besides question and answer are too few for this task",
            hint="--contexts 4k..128k",
        )
    return count


class HiddenLines(Record):
    """A question about some lines, which a message hides among others like them."""

    before: str
    """What the lines are."""
    lines: tuple[str, ...]
    after: str
    """What is asked."""
    output_tokens: int

    def room(self, tokenizer: Tokenizer, context: int, *besides: str) -> int:
        """Return the tokens that a context has for other lines, with *besides* sent as well."""
        around = (self.before, self.after, *self.lines, *besides)
        return room(tokenizer, context, output=self.output_tokens, around=around)

    def item(
        self,
        others: Sequence[str],
        *,
        depth: float | None,
        wanted: str,
        tools: tuple[Json, ...] = (),
    ) -> Item:
        """Return the question, with the lines at a depth among the *others*."""
        at = place(depth, len(others))
        lines = [*others[:at], *self.lines, *others[at:]]
        return Item(
            messages=prompt(self.before + "\n".join(lines) + self.after),
            wanted=(wanted,),
            output_tokens=self.output_tokens,
            tools=tools,
        )


def place(depth: float | None, count: int) -> int:
    """Return the place among *count* pieces at this relative depth; None means the middle."""
    return round((0.5 if depth is None else depth) * count)


def noise(tokenizer: Tokenizer, tokens: int) -> list[str]:
    """Return as many noise sentences as fit into this many tokens."""
    return list(
        islice(cycle(SENTENCES), pieces_that_fit(tokenizer, tokens, SENTENCES * 8, joint=" "))
    )


def together(items: Sequence[Item], *, task: str) -> tuple[Item, ...]:
    """Return the items as questions behind all of their contexts, one after the other.

    Raises UsageError for what is no single message.
    """
    contexts, questions = [], []
    for item in items:
        is_conversation = len(item.messages) > 1 or item.tools
        text = "" if is_conversation else texts(item)[0]
        context, line_end, question = text.rpartition("\n")
        if not line_end:
            raise UsageError(
                f"task '{task}' is a conversation, or calls tools: its questions share no context",
                hint="--per-context 1",
            )
        contexts.append(context)
        questions.append(question)
    whole = "\n\n".join(contexts)
    pairs = zip(items, questions, strict=True)
    return tuple(replace(item, messages=prompt(f"{whole}\n{question}")) for item, question in pairs)
