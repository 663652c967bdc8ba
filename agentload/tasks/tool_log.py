"""Look up the id that one tool call returned, in a long log of similar calls."""

import re
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import fitting, prompt_hiding, room
from agentload.tasks.parts.grading import grade_match

OUTPUT_TOKENS: Final = 64
_TOOLS: Final = (
    "search_orders",
    "read_file",
    "run_query",
    "list_hosts",
    "fetch_page",
    "send_mail",
    "open_ticket",
    "run_tests",
)
_BEFORE: Final = "This is the log of the tool calls of a session. I will ask for one of them.\n"
_AFTER: Final = "\nWhat is the result id of call {call}? Answer with the id alone."
_SHAPE: Final = re.compile(r"\br-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)


def generate(
    rng: Random, *, context: int, depth: float | None, tokenizer: Tokenizer = WORD_TOKENS
) -> Item:
    """Write a log and ask for the call at a depth."""
    ((call, wanted),) = _drawn(rng, 1)
    asked = _line(rng, call, wanted)
    after = _AFTER.format(call=call)
    left = room(tokenizer, context, output=OUTPUT_TOKENS, around=(_BEFORE, after, asked))
    sample_rng = Random(0)
    sample = [_line(sample_rng, *each) for each in _drawn(sample_rng, 32)]
    count = fitting(tokenizer, left, sample)
    log: list[str] = []
    for other, result in _drawn(rng, count):
        if other != call and result != wanted:
            log.append(_line(rng, other, result))
    return Item(
        messages=prompt_hiding(asked, among=log, depth=depth, before=_BEFORE, after=after),
        wanted=(wanted,),
        output_tokens=OUTPUT_TOKENS,
    )


def grade(answer: str, item: Item) -> Grade:
    """Score the id; right is that id and no other."""
    return grade_match(answer, item, _SHAPE)


def _drawn(rng: Random, count: int) -> list[tuple[str, str]]:
    ids = draw.uuids(rng, count)
    return [(f"call-{each[:8]}", f"r-{each[9:13]}-{each[24:]}") for each in ids]


def _line(rng: Random, call: str, result: str) -> str:
    return (
        f"[{draw.choice(rng, _TOOLS)} took {draw.below(rng, 9000)} ms] result id of call {call} "
        f"is {result}"
    )
