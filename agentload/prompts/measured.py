"""A tokenizer that was measured: a template's frames and the words that cost one token each, or their mean cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agentload.prompts.tokenizer import Exactness, Part

CHARACTERS_A_TOKEN: Final = 4.0
"""Where nothing can count a text: what BPE vocabularies of 100k tokens and more need for English prose, rounded down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTokens:
    """The target's tokens as far as counting requests could tell."""

    exact: Exactness
    words: tuple[str, ...]
    frames: Mapping[Part, int]
    tokens_a_word: float = 1.0
    count_text: Callable[[str], int] | None = None
    """Counts any text; without it texts are measured by their characters."""

    @property
    def counts(self) -> Exactness:
        """Say whether texts that are not drawn are counted or estimated."""
        return "ratio" if self.count_text is None else self.exact

    def frame(self, part: Part) -> int:
        """Count the tokens that the template puts around a part."""
        return self.frames.get(part, 0)

    def fit(self, tokens: int) -> int:
        """Return how many drawn words come nearest to this many tokens."""
        return round(tokens / self.tokens_a_word)

    def cost(self, words: int) -> int:
        """Count the tokens of this many drawn words."""
        return round(words * self.tokens_a_word)

    def count(self, text: str) -> int:
        """Count the tokens of any text, or estimate them."""
        return self.count_text(text) if self.count_text is not None else round(len(text) / CHARACTERS_A_TOKEN)
