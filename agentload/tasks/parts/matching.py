"""Match answers with what is wanted: RULER's rule as published, and what keeps an echo of the context from scoring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from agentload.tasks.item import NOTHING, Grade, Item, texts

ECHO_WORDS: Final = 24
"""A run of so many words of the context in an answer is an echo. A whole needle with its question has some 20."""


def string_match_all(answer: str, wanted: Sequence[str]) -> float:
    """Return the share of the wanted texts that the answer contains, in any case: RULER's score of needles and variables."""
    return sum(each.lower() in answer.lower() for each in wanted) / len(wanted)


def holds(answer: str, wanted: str) -> bool:
    """Tell whether the answer contains the text on its own: 12 is not in 123."""
    return re.search(rf"(?<![\w-]){re.escape(wanted)}(?![\w-])", answer, re.IGNORECASE) is not None


def is_set(answer: str, wanted: Iterable[str], shape: re.Pattern[str]) -> bool:
    """Tell whether what has this shape in the answer is exactly what is wanted, in any order and case."""
    return {found.lower() for found in shape.findall(answer)} == {each.lower() for each in wanted}


def is_echo(answer: str, item: Item) -> bool:
    """Tell whether the answer repeats a long run of its prompt other than what it was asked to say."""
    said = answer.split()
    if len(said) < ECHO_WORDS:
        return False
    asked = " ".join(" ".join(item.wanted).split())
    heard = " ".join(" ".join(texts(item)).split())
    runs = (" ".join(said[at : at + ECHO_WORDS]) for at in range(len(said) - ECHO_WORDS + 1))
    return any(run not in asked and run in heard for run in runs)


def matched(answer: str, item: Item, shape: re.Pattern[str]) -> Grade:
    """Grade by RULER's rule; right are all wanted texts on their own and no other of their shape."""
    if not answer.strip() or is_echo(answer, item):
        return NOTHING
    whole = all(holds(answer, each) for each in item.wanted)
    return Grade(score=string_match_all(answer, item.wanted), right=whole and is_set(answer, item.wanted, shape))
