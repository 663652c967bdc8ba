"""Recall the exact line added by one hunk of a long patch."""

from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
from agentload.tasks.parts.grading import is_echo

OUTPUT_TOKENS: Final = 64
_BEFORE: Final = "These are the hunks of a patch. I will ask for the line that one of them adds.\n"
_AFTER: Final = "\nWhat is the line added by hunk {hunk}? Answer with the line alone."
_CALLS: Final = ("round", "parse", "clamp", "merge", "lookup", "hash_of", "weight", "trim")


def generate(
    rng: Random, *, context: int, depth: float | None, tokenizer: Tokenizer = WORD_TOKENS
) -> Item:
    """Write hunks and ask for the line that the one at a depth adds."""
    ((hunk, wanted),) = _hunks(rng, 1)
    hidden = HiddenLines(
        before=_BEFORE,
        lines=(_text(hunk, wanted),),
        after=_AFTER.format(hunk=hunk),
        output_tokens=OUTPUT_TOKENS,
    )
    sample = [_text(*each) for each in _hunks(Random(0), 32)]
    count = pieces_that_fit(tokenizer, hidden.room(tokenizer, context), sample)
    hunks = [_text(number, line) for number, line in _hunks(rng, count) if number != hunk]
    return hidden.item(hunks, depth=depth, wanted=wanted)


def grade(answer: str, item: Item) -> Grade:
    """Score the exact line, ignoring indentation and a leading plus; right is the line alone."""
    lines = [
        line.strip().strip("`").removeprefix("+").strip()
        for line in answer.strip().splitlines()
        if line.strip("` \t")
    ]
    if not lines or is_echo(answer, item):
        return NOTHING
    is_there = item.wanted[0] in lines
    return Grade(score=float(is_there), right=is_there and len(lines) == 1)


def _hunks(rng: Random, count: int) -> list[tuple[str, str]]:
    """Draw hunks: the number of each, and the line that it adds."""
    numbers = draw.numbers(rng, count, digits=6)
    left = draw.pairs(rng, count, joint="_")
    right = draw.pairs(rng, count, joint="_")
    marks = draw.numbers(rng, count, digits=4)
    hunks: list[tuple[str, str]] = []
    for number, target, argument, mark in zip(numbers, left, right, marks, strict=True):
        function = _CALLS[int(mark) % len(_CALLS)]
        hunks.append((number, f"{target} = {function}({argument}, {mark})"))
    return hunks


def _text(hunk: str, added: str) -> str:
    return f"@@ hunk {hunk} @@\n     return None\nThe line added by hunk {hunk}: `{added}`"
