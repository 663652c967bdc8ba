"""Needle in a haystack after RULER: find the one value of a key among
noise (single) or needles like it (multikey), or all its values.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Final, Literal

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item, prompt
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import noise, pieces_that_fit, place, room
from agentload.tasks.parts.grading import grade_match

OUTPUT_TOKENS: Final = 128  # as RULER asks for
VARIANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "needle": {},
    "needle-multikey-2": {"kind": "multikey_2"},
    "needle-multikey-3": {"kind": "multikey_3"},
    "needle-multivalue-4": {"kind": "multivalue_4"},
}
VALUES: Final = 4
_BEFORE: Final = (
    "Some special magic {kind}s are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {kind}s afterwards.\n"
)
_AFTER: Final = (
    "\nWhat is the special magic {kind} for {key} mentioned in the provided text? Answer with "
    "the {kind} alone."
)
_ALL: Final = (
    "\nWhat are all the special magic {kind}s for {key} mentioned in the provided text? Answer "
    "with the {kind}s alone, separated by commas."
)
_NEEDLE: Final = "One of the special magic {kind}s for {key} is: {value}."
_NUMBER: Final = re.compile(r"\d[\d,]*\d")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def generate(
    rng: Random,
    *,
    context: int,
    depth: float | None,
    tokenizer: Tokenizer = WORD_TOKENS,
    kind: Literal["single", "multikey_2", "multikey_3", "multivalue_4"] = "single",
) -> Item:
    """Hide a needle at a depth; multikey_2 hides it among needles
    of words and numbers, multikey_3 among needles of UUIDs.

    multivalue_4 hides three more values of its key anywhere in the noise: all four are asked for.
    """
    is_uuid = kind == "multikey_3"
    sort = "uuid" if is_uuid else "number"
    ((key, value),) = _draw_pairs(rng, 1, is_uuid=is_uuid)
    values = [value]
    if kind == "multivalue_4":
        values += draw.numbers(rng, VALUES - 1)
    needle, *others = (_NEEDLE.format(kind=sort, key=key, value=each) for each in values)
    before = _BEFORE.format(kind=sort)
    after = (_ALL if others else _AFTER).format(kind=sort, key=key)
    left = room(tokenizer, context, output=OUTPUT_TOKENS, around=(before, after, needle, *others))
    if kind in ("single", "multivalue_4"):
        hay, joint = noise(tokenizer, left), " "
    else:
        joint = "\n"
        count = pieces_that_fit(
            tokenizer, left, _needles(Random(0), 32, sort, is_uuid=is_uuid), joint=joint
        )
        hay = [
            text
            for text in _needles(rng, count, sort, is_uuid=is_uuid)
            if f" {key} " not in text and value not in text
        ]
    hay.insert(place(depth, len(hay)), needle)
    for each in others:
        hay.insert(draw.below(rng, len(hay) + 1), each)
    return Item(
        messages=prompt(before + joint.join(hay) + after),
        wanted=tuple(values),
        output_tokens=OUTPUT_TOKENS,
    )


def grade(answer: str, item: Item) -> Grade:
    """Score as RULER does; right is the value, or all of them, and no other of its kind."""
    shape = _UUID if _UUID.fullmatch(item.wanted[0]) else _NUMBER
    plain = answer.replace(",", "") if shape is _NUMBER else answer
    return grade_match(plain, item, shape)


def _needles(rng: Random, count: int, sort: str, *, is_uuid: bool) -> list[str]:
    return [
        _NEEDLE.format(kind=sort, key=key, value=value)
        for key, value in _draw_pairs(rng, count, is_uuid=is_uuid)
    ]


def _draw_pairs(rng: Random, count: int, *, is_uuid: bool) -> list[tuple[str, str]]:
    """Draw keys, each with its value."""
    if is_uuid:
        keys = draw.uuids(rng, count)
        values = draw.uuids(rng, count)
    else:
        keys = draw.pairs(rng, count)
        values = draw.numbers(rng, count)
    return list(zip(keys, values, strict=True))
