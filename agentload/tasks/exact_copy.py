"""Copy a passage of 200 tokens word for word: a
broken cache shows as repetition or as invented words.
"""

from difflib import SequenceMatcher
from random import Random
from typing import Final

from agentload.prompts import words
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
from agentload.tasks.parts.grading import is_echo

PASSAGE_WORDS: Final = 200
OUTPUT_TOKENS: Final = 260  # the passage, and room for quotes or a word too many
_BEFORE: Final = "These are numbered passages. I will ask you to repeat one of them.\n"
_AFTER: Final = (
    "\nWhat is the text of passage {name}? Repeat it word by word, without quotes and without "
    "anything else."
)


def generate(
    rng: Random, *, context: int, depth: float | None, tokenizer: Tokenizer = WORD_TOKENS
) -> Item:
    """Write passages of equal length and ask for the one at a depth."""
    (name,) = draw.pairs(rng, 1)
    wanted = _passage(rng)
    hidden = HiddenLines(
        before=_BEFORE,
        lines=(_line(name, wanted),),
        after=_AFTER.format(name=name),
        output_tokens=OUTPUT_TOKENS,
    )
    sample = [_line("also-area", _passage(Random(0)))] * 2
    count = pieces_that_fit(tokenizer, hidden.room(tokenizer, context), sample)
    others = [_line(each, _passage(rng)) for each in draw.pairs(rng, count) if each != name]
    return hidden.item(others, depth=depth, wanted=wanted)


def grade(answer: str, item: Item) -> Grade:
    """Score how much of the passage is there, in order;
    right is the exact passage, with or without quotes.
    """
    plain = answer.strip().strip("\"'`")
    said = plain.split()
    wanted = item.wanted[0].split()
    if not said or is_echo(plain, item):
        return NOTHING
    same = SequenceMatcher(None, said, wanted, autojunk=False).find_longest_match()
    longest = max(len(said), len(wanted))
    return Grade(score=same.size / longest, right=said == wanted)


def _passage(rng: Random) -> str:
    return words.text(0, rng.random().hex(), PASSAGE_WORDS).strip()


def _line(name: str, text: str) -> str:
    return f'The text of passage {name} is "{text}"'
