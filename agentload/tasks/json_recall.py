"""Recall settings from a long list, as a JSON object that follows a schema."""

import json
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
from agentload.tasks.parts.grading import is_echo, json_in

OUTPUT_TOKENS: Final = 128
KEYS: Final = 3
_BEFORE: Final = (
    "These are the settings of a deployment, one a line. I will ask for some of them.\n"
)
_AFTER: Final = (
    "\nWhat are the values of these settings? Answer as a JSON object with the keys {keys} and "
    "nothing else. All values are strings."
)


def generate(
    rng: Random, *, context: int, depth: float | None, tokenizer: Tokenizer = WORD_TOKENS
) -> Item:
    """Write settings and ask for three neighbours at a depth."""
    asked = _draw_settings(rng, KEYS)
    keys = [key for key, _ in asked]
    hidden = HiddenLines(
        before=_BEFORE,
        lines=tuple(_line(*each) for each in asked),
        after=_AFTER.format(keys=f"{', '.join(keys[:-1])} and {keys[-1]}"),
        output_tokens=OUTPUT_TOKENS,
    )
    sample = [_line(*each) for each in _draw_settings(Random(0), 32)]
    count = pieces_that_fit(tokenizer, hidden.room(tokenizer, context), sample)
    others = [_line(key, value) for key, value in _draw_settings(rng, count) if key not in keys]
    return hidden.item(others, depth=depth, wanted=json.dumps(dict(asked)))


def grade(answer: str, item: Item) -> Grade:
    """Score the share of the values; right is the object
    with exactly these keys and values, all strings.
    """
    found = json_in(answer)
    if not isinstance(found, dict) or is_echo(answer, item):
        return NOTHING
    wanted = json.loads(item.wanted[0])
    same = [key for key, value in wanted.items() if found.get(key) == value]
    return Grade(score=len(same) / len(wanted), right=found == wanted)


def _draw_settings(rng: Random, count: int) -> list[tuple[str, str]]:
    """Draw settings, each with its value."""
    names = draw.pairs(rng, count, joint="_")
    marks = draw.numbers(rng, count, digits=4)
    values = draw.numbers(rng, count, digits=6)
    # The number keeps names of equal words apart.
    drawn = {
        f"{name}_{mark}": value for name, mark, value in zip(names, marks, values, strict=True)
    }
    return list(drawn.items())


def _line(key: str, value: str) -> str:
    return f'{key} = "{value}"'
