"""RULER's noise haystack: five sentences over and over, in which whatever is hidden stands out."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Final

from agentload.prompts.tokenizer import Tokenizer
from agentload.tasks.parts.lengths import fitting

SENTENCES: Final = ("The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.")


def noise(tokenizer: Tokenizer, tokens: int) -> list[str]:
    """Return as many sentences as fit into this many tokens."""
    return list(islice(cycle(SENTENCES), fitting(tokenizer, tokens, SENTENCES * 8, joint=" ")))
