"""Variable tracking after RULER: name all variables that hold a
value, which is assigned from one to the next across the context.
"""

import re
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item, prompt
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import SENTENCES, noise, room
from agentload.tasks.parts.grading import grade_match

HAS_DEPTH: Final = False
HOPS: Final = 4  # as in RULER: one chain of five names
OUTPUT_TOKENS: Final = 60  # RULER's 30, and room for the names beside them
_BEFORE: Final = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
)
_AFTER: Final = (
    "\nQuestion: Find all variables that are assigned the value {value} in the text above. "
    "Answer with their names alone."
)
_SHOWN: Final = "\nAnswer: {names}\n\n"
_NAME: Final = re.compile(r"\b[A-Z]{5}\b")


def generate(
    rng: Random,
    *,
    context: int,
    depth: float | None,  # noqa: ARG001  # no depth
    tokenizer: Tokenizer = WORD_TOKENS,
) -> Item:
    """Spread a chain of assignments over the context, after one worked example."""
    shown = _chain(rng)
    example = (
        _BEFORE
        + " ".join(_spread(rng, list(SENTENCES), shown))
        + _AFTER.format(value=shown[0])
        + _SHOWN.format(names=" ".join(shown[1:]))
    )
    chain = _chain(rng)
    value, *names = chain
    after = _AFTER.format(value=value)
    left = room(
        tokenizer,
        context,
        output=OUTPUT_TOKENS,
        around=(example, _BEFORE, after, *_assignments(chain)),
    )
    text = " ".join(_spread(rng, noise(tokenizer, left), chain))
    return Item(
        messages=prompt(example + _BEFORE + text + after),
        wanted=tuple(names),
        output_tokens=OUTPUT_TOKENS,
    )


def grade(answer: str, item: Item) -> Grade:
    """Score the share of the names, as RULER does; right means these names and no others."""
    return grade_match(answer, item, _NAME)


def _chain(rng: Random) -> list[str]:
    names: dict[str, None] = {}
    while len(names) <= HOPS:
        names[draw.letters(rng, 5)] = None
    return [draw.numbers(rng, 1, digits=5)[0], *names]


def _assignments(chain: list[str]) -> list[str]:
    value, first, *others = chain
    return [
        f"VAR {first} = {value} .",
        *(
            f"VAR {name} = VAR {source} ."
            for source, name in zip((first, *others), others, strict=False)
        ),
    ]


def _spread(rng: Random, sentences: list[str], chain: list[str]) -> list[str]:
    assignments = _assignments(chain)
    places = sorted(draw.below(rng, len(sentences) + 1) for _ in assignments)
    for place, each in zip(reversed(places), reversed(assignments), strict=True):
        sentences.insert(place, each)
    return sentences
