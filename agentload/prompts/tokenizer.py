"""The target's token counts for a renderer: the emulator's rule, or measured costs."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol, TypeAlias

from agentload.model.record import Record
from agentload.prompts.words import WORDS

Exactness: TypeAlias = Literal["exact", "ratio"]
Part: TypeAlias = Literal[
    "prompt",  # around all messages
    # additional tokens without a leading system message: the template's default system prompt
    "systemless",
    "tools",  # what introduces the tool schemas
    "schema",  # around each of them
    "system",  # around each message, the newline at its end included
    "user",
    "assistant",
    "tool",  # around a tool's result and the call it answers
    "next_tool",  # the same, after another result
    "newline",  # between two texts of one message
]
"""Tokens that a chat template adds around content, whatever the content."""
CHARACTERS_A_TOKEN: Final = 4.0
"""Characters of a token, as an estimate without a counter.

English prose in BPE vocabularies of 100k tokens and more, rounded down.
"""


class Tokenizer(Protocol):
    """Converts between words of the table and tokens of the target."""

    @property
    def exact(self) -> Exactness:
        """Exactness of lengths: exact tokens of the target, or a measured ratio."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words that may be drawn."""

    def frame(self, part: Part) -> int:
        """Count the tokens that the template puts around a part, whatever it holds."""

    def fit(self, tokens: int) -> int:
        """Return the number of drawn words closest to this many tokens."""

    def cost(self, words: int) -> int:
        """Count the tokens of this many drawn words."""

    def count(self, text: str) -> int:
        """Count the tokens of any text."""


class MeasuredTokens(Record):
    """The target's tokens, as measured by counting requests."""

    exact: Exactness
    words: tuple[str, ...]
    frames: Mapping[Part, int]
    tokens_a_word: float = 1.0
    count_text: Callable[[str], int] | None = None
    """Counts any text; without it texts are estimated by their characters."""

    def frame(self, part: Part) -> int:
        """Count the tokens that the template puts around a part."""
        return self.frames.get(part, 0)

    def fit(self, tokens: int) -> int:
        """Return the number of drawn words closest to this many tokens."""
        return round(tokens / self.tokens_a_word)

    def cost(self, words: int) -> int:
        """Count the tokens of this many drawn words."""
        return round(words * self.tokens_a_word)

    def count(self, text: str) -> int:
        """Count the tokens of any text, or estimate them."""
        if self.count_text is not None:
            return self.count_text(text)
        return round(len(text) / CHARACTERS_A_TOKEN)


def _words(text: str) -> int:
    return len(text.split())


WORD_TOKENS: Final = MeasuredTokens(exact="exact", words=WORDS, frames={}, count_text=_words)
"""The emulator's tokenizer: a word is a token, the template adds none."""
