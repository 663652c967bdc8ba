"""What a renderer must know of the target's tokens; the words tokenizer of the emulator is the default."""

from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from agentload.prompts.words import WORDS

Exactness: TypeAlias = Literal["exact", "ratio"]
Part: TypeAlias = Literal["prompt", "system", "user", "assistant", "tool", "call", "schema", "newline"]
"""What a chat template wraps: the prompt once, each message by its role, each tool call, each tool schema; and a text's last newline."""


class Tokenizer(Protocol):
    """Convert between words of the table and tokens of the target."""

    @property
    def exact(self) -> Exactness:
        """Say whether lengths are the target's own tokens or come from a measured ratio."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that may be drawn."""

    def frame(self, part: Part) -> int:
        """Count the tokens that the template puts around a part, whatever it holds."""

    def fit(self, tokens: int) -> int:
        """Return how many drawn words come nearest to this many tokens, never more where the count is exact."""

    def cost(self, words: int) -> int:
        """Count the tokens of this many drawn words."""

    def count(self, text: str) -> int:
        """Count the tokens of any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordTokens:
    """The emulator's tokenizer: a word is a token, the template adds none."""

    exact: Exactness = "exact"
    words: tuple[str, ...] = WORDS

    def frame(self, part: Part) -> int:  # noqa: ARG002  # the protocol's signature
        """Count nothing: there is no template."""
        return 0

    def fit(self, tokens: int) -> int:
        """Return the tokens: each is a word."""
        return tokens

    def cost(self, words: int) -> int:
        """Return the words: each is a token."""
        return words

    def count(self, text: str) -> int:
        """Count white-space separated words."""
        return len(text.split())


WORD_TOKENS: Final = WordTokens()
