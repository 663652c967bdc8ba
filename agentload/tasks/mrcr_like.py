"""Tell equal requests apart, after OpenAI's MRCR: one conversation
asks for the same thing several times; return the k-th answer.
"""

from collections.abc import Mapping
from difflib import SequenceMatcher
from random import Random
from typing import Final

from agentload.prompts import words
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import NOTHING, Grade, Item, Json
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import pieces_that_fit, room

HAS_DEPTH: Final = False
PIECE_WORDS: Final = 96
OUTPUT_TOKENS: Final = 160
VARIANTS: Final[Mapping[str, Mapping[str, object]]] = {
    f"mrcr_like-{asks}": {"asks": asks} for asks in (2, 4, 8)
}
_FORMS: Final = ("poem", "riddle", "letter", "speech", "song", "tale", "review", "note")
_ASK: Final = "Write a {form} about {topic}."
_LAST: Final = (
    "Prepend {mark} to the {place} (1 indexed) {form} about {topic}. Do not include any other "
    "text in your response."
)


def generate(
    rng: Random,
    *,
    context: int,
    depth: float | None,  # noqa: ARG001
    asks: int = 2,
    tokenizer: Tokenizer = WORD_TOKENS,
) -> Item:
    """Ask for the same thing *asks* times among other requests, then for one of the answers."""
    form = draw.choice(rng, _FORMS)
    (topic,) = draw.pairs(rng, 1)
    wanted = draw.below(rng, asks)
    mark = "".join(draw.choice(rng, "abcdefghijkmnpqrstuvwxyz23456789") for _ in range(10))
    last = _LAST.format(mark=mark, place=_ordinal(wanted + 1), form=form, topic=topic)
    left = room(tokenizer, context, output=OUTPUT_TOKENS, around=(last,))
    frame = tokenizer.frame("user") + tokenizer.frame("assistant")
    sample = f"{_ASK.format(form=form, topic=topic)} {_piece(Random(0))}"
    turns = pieces_that_fit(tokenizer, left, [sample] * 2, frame=frame)
    others = [
        (draw.choice(rng, _FORMS), each)
        for each in draw.pairs(rng, max(0, turns - asks))
        if each != topic
    ]
    places = sorted(draw.below(rng, len(others) + 1) for _ in range(asks))
    for place in reversed(places):
        others.insert(place, (form, topic))
    talk: list[Json] = []
    answers = []
    for other_form, other_topic in others:
        said = _piece(rng)
        request = _ASK.format(form=other_form, topic=other_topic)
        talk.append({"role": "user", "content": request})
        talk.append({"role": "assistant", "content": said})
        if (other_form, other_topic) == (form, topic):
            answers.append(said)
    return Item(
        messages=(*talk, {"role": "user", "content": last}),
        wanted=(mark, answers[wanted]),
        output_tokens=OUTPUT_TOKENS,
    )


def grade(answer: str, item: Item) -> Grade:
    """Score as MRCR does: zero without the mark in front,
    else the similarity of the rest; right is an exact rest.
    """
    mark, wanted = item.wanted
    if not answer.startswith(mark):
        return NOTHING
    said = answer.removeprefix(mark)
    if said.strip() in str(item.messages[-1].get("content")):  # the request itself holds the mark
        return NOTHING
    return Grade(
        score=SequenceMatcher(None, said, wanted).ratio(), right=said.split() == wanted.split()
    )


def _piece(rng: Random) -> str:
    """Write lines of eight words."""
    said = words.text(0, rng.random().hex(), PIECE_WORDS).split()
    lines = [said[at : at + 8] for at in range(0, len(said), 8)]
    return "\n".join(map(" ".join, lines))


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"
