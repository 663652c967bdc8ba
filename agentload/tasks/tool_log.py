"""Look up the id that one tool call returned, in a long log of similar calls."""

import re
from random import Random
from typing import Final

from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item
from agentload.tasks.parts import draw
from agentload.tasks.parts.draw import HiddenLines, pieces_that_fit
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
    """Write a log, and ask for its call at a depth (None: in the middle)."""
    ((call, wanted),) = _draw_calls(rng, 1)
    hidden = HiddenLines(
        before=_BEFORE,
        lines=(_line(rng, call, wanted),),
        after=_AFTER.format(call=call),
        output_tokens=OUTPUT_TOKENS,
    )
    # One sample for all items: how many lines fit depends on no item's seed.
    sample_rng = Random(0)
    sample = [_line(sample_rng, *each) for each in _draw_calls(sample_rng, 32)]
    count = pieces_that_fit(tokenizer, hidden.room(tokenizer, context), sample)
    log: list[str] = []
    for other, result in _draw_calls(rng, count):
        if other != call and result != wanted:  # there is one right answer
            log.append(_line(rng, other, result))
    return hidden.item(log, depth=depth, wanted=wanted)


def grade(answer: str, item: Item) -> Grade:
    """Score the id; right is that id and no other."""
    return grade_match(answer, item, _SHAPE)


def _draw_calls(rng: Random, count: int) -> list[tuple[str, str]]:
    """Draw pairs of ids, of a call and its result: parts of one UUID, as `_SHAPE` reads them."""
    ids = draw.uuids(rng, count)
    return [(f"call-{each[:8]}", f"r-{each[9:13]}-{each[24:]}") for each in ids]


def _line(rng: Random, call: str, result: str) -> str:
    return (
        f"[{draw.choice(rng, _TOOLS)} took {draw.below(rng, 9000)} ms] result id of call {call} "
        f"is {result}"
    )
