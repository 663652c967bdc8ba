"""Follow pointers through a long conversation: turns note
where boxes point, and the question takes three steps.
"""

import re
from itertools import pairwise
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item, Json
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import pieces_that_fit, room
from agentload.tasks.parts.grading import grade_match

HAS_DEPTH: Final = False
STEPS: Final = 3
OUTPUT_TOKENS: Final = 48
_LINES: Final = 8
_NOTED: Final = "Noted."
_ASK: Final = (
    "Start at {start} and follow the pointers {steps} times. At which box do you end? Answer "
    "with its name alone."
)
_SHAPE: Final = re.compile(r"\bbox-\d{6}\b", re.IGNORECASE)


def generate(
    rng: Random,
    *,
    context: int,
    depth: float | None,  # noqa: ARG001  # no depth
    tokenizer: Tokenizer = WORD_TOKENS,
) -> Item:
    """Write a conversation whose turns note pointers; the chain's are anywhere, in any order."""
    chain = _distinct(draw.numbers(rng, 2 * STEPS + 2, digits=6), STEPS + 1)
    asked = _ASK.format(start=f"box-{chain[0]}", steps=STEPS)
    own = [_line(*each) for each in pairwise(chain)]
    left = room(tokenizer, context, output=OUTPUT_TOKENS, around=(asked, *own))
    frame = tokenizer.frame("user") + tokenizer.frame("assistant") + tokenizer.count(_NOTED)
    sample = ["\n".join([_line("123456", "654321")] * _LINES)] * 4
    turns = pieces_that_fit(tokenizer, left, sample, frame=frame)
    drawn = draw.numbers(rng, 2 * turns * _LINES, digits=6)
    sources = _distinct(draw.different(drawn, chain), turns * _LINES)
    targets = [*sources[1:], sources[0]]
    lines = [_line(*each) for each in zip(sources, targets, strict=True)]
    for each in own:
        lines.insert(draw.below(rng, len(lines) + 1), each)
    talk: list[Json] = []
    for at in range(0, len(lines), _LINES):
        text = "\n".join(lines[at : at + _LINES])
        talk.append({"role": "user", "content": text})
        talk.append({"role": "assistant", "content": _NOTED})
    return Item(
        messages=(*talk, {"role": "user", "content": asked}),
        wanted=(f"box-{chain[-1]}",),
        output_tokens=OUTPUT_TOKENS,
    )


def grade(answer: str, item: Item) -> Grade:
    """Score the last box; right is that box alone, without those on the way."""
    return grade_match(answer, item, _SHAPE)


def _distinct(drawn: list[str], most: int) -> list[str]:
    return list(dict.fromkeys(drawn))[:most]


def _line(source: str, target: str) -> str:
    return f"box-{source} points to box-{target}"
