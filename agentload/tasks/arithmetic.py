"""Solve one story problem among many, of four steps or of forty:
an exact number at the end, with unrelated stories as distractors.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
from agentload.tasks.parts.grading import is_echo

STEP_TOKENS: Final = 64  # of an answer: steps may be written down
STEPS: Final = 4
LONG: Final = 40  # a derivation, in which one number that is read wrong spoils all that follow
VARIANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "arithmetic": {},
    "arithmetic-40": {"steps": LONG},
}
_BEFORE: Final = "These are little stories about what people own. I will ask about one of them.\n"
_AFTER: Final = (
    "\nHow many {thing} does {name} have in the end? Think step by step, then end with a line "
    "#### and the number."
)
_THINGS: Final = ("cards", "stamps", "coins", "shells", "books", "beads", "pens", "marbles")
_STRICT: Final = re.compile(r"#### *(-?[\d,]+)")
_FLEXIBLE: Final = re.compile(r"-?\d[\d,]*")


def generate(
    rng: Random,
    *,
    context: int,
    depth: float | None,
    tokenizer: Tokenizer = WORD_TOKENS,
    steps: int = STEPS,
) -> Item:
    """Write stories and ask about the one at a depth, with its number of steps."""
    (name,) = draw.pairs(rng, 1)
    thing = draw.choice(rng, _THINGS)
    asked, count = _story(rng, name, thing, steps)
    hidden = HiddenLines(
        before=_BEFORE,
        lines=(asked,),
        after=_AFTER.format(thing=thing, name=name),
        output_tokens=STEP_TOKENS * min(steps, LONG // 2),
    )
    sample_rng = Random(0)
    sample = [_story(sample_rng, each, "marbles")[0] for each in draw.pairs(sample_rng, 128)]
    fits = pieces_that_fit(tokenizer, hidden.room(tokenizer, context), sample)
    others = [
        _story(rng, each, draw.choice(rng, _THINGS))[0]
        for each in draw.pairs(rng, fits)
        if each != name
    ]
    return hidden.item(others, depth=depth, wanted=str(count))


def grade(answer: str, item: Item) -> Grade:
    """Score the last number, as in GSM8K's flexible
    rule; right if it follows #### or stands alone.
    """
    numbers = _FLEXIBLE.findall(answer)
    if not numbers or is_echo(answer, item):
        return NOTHING
    wanted = item.wanted[0]
    strict = _STRICT.findall(answer)
    is_last = _plain(numbers[-1]) == wanted
    is_ended = len(numbers) == 1
    if strict:
        is_ended = _plain(strict[-1]) == wanted
    return Grade(score=float(is_last), right=is_last and is_ended)


def _plain(number: str) -> str:
    return number.replace(",", "")


def _story(rng: Random, name: str, thing: str, steps: int = STEPS) -> tuple[str, int]:
    count = 20 + draw.below(rng, 80)
    said = [f"{name} has {count} {thing}."]
    for _ in range(steps):
        some = 2 + draw.below(rng, 17)
        match draw.below(rng, 3):
            case 0:
                count += some
                said.append(f"{name} gets {some} more of them.")
            case 1 if count > some:
                count -= some
                said.append(f"{name} gives away {some} of them.")
            case _:
                count *= 2
                said.append(f"{name} doubles all that is there.")
    return " ".join(said), count
