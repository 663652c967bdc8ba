"""Read a user's own items: JSON lines of messages and a grader, one check or a list."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from agentload.errors import UsageError
from agentload.model.check import problem
from agentload.model.record import Record
from agentload.prompts.tokenizer import CHARACTERS_A_TOKEN
from agentload.tasks import Grade, Item, prompt, texts
from agentload.tasks.parts.grading import grade_all
from agentload.tracefile import wire
from agentload.tracefile.codec import check as decoded

EXAMPLE: Final = (
    '{"id": "q1", "messages": [{"role": "user", "content": "Which build failed?"}], "grader": '
    '{"has": "ZX-4417"}}'
)
_SHORTEST: Final = 1024


class ItemLine(msgspec.Struct, forbid_unknown_fields=True):
    """One item of the file."""

    messages: tuple[dict[str, Any], ...]
    grader: wire.JsonCheck | tuple[wire.JsonCheck, ...]
    id: str | None = None
    task: str = "own"
    context: int | None = None
    """Length to report the item under; if absent, estimated and rounded up to a power of two."""
    output: int = 512
    tools: tuple[dict[str, Any], ...] = ()


class Own(Record):
    """A user's item and its grader."""

    name: str
    task: str
    item: Item
    grade: Callable[[str], Grade]
    said_context: int | None = None

    @property
    def context(self) -> int:
        """Length that the item is reported under: as the file says, or estimated."""
        return self.said_context or _bucket(self.item)


def conversation(text: str, *, output_tokens: int) -> Item:
    """Return an item that is one message, graded by a function of its own."""
    return Item(messages=prompt(text), wanted=(), output_tokens=output_tokens)


def parse(lines: Iterable[str], *, name: str) -> tuple[Own, ...]:
    """Parse the file *name*; raise `UsageError` that names the wrong line."""
    out: list[Own] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            out.append(_own(msgspec.json.decode(line, type=ItemLine), f"{number}"))
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"{name}:{number}: {error}", hint=EXAMPLE) from error
    return distinct(out, name=name, example=EXAMPLE)


def distinct(items: Iterable[Own], *, name: str, example: str) -> tuple[Own, ...]:
    """Return the items of the file *name*.

    Raises `UsageError` if there are none, or two of one task have the same name.
    """
    found = tuple(items)
    if not found:
        raise UsageError(f"{name}: it has no items", hint=example)
    counts = Counter((each.task, each.name) for each in found)
    (task, item), count = counts.most_common(1)[0]
    if count > 1:
        raise UsageError(f"{name}: two items of '{task}' are called '{item}'", hint=example)
    return found


def _own(line: ItemLine, fallback: str) -> Own:
    if not line.messages or line.output < 1 or (line.context is not None and line.context < 1):
        raise ValueError("an item needs messages, and output and context are at least 1")
    given = line.grader if isinstance(line.grader, tuple) else (line.grader,)
    checks = tuple(map(decoded, given))
    if not checks:
        raise ValueError("an item needs a grader")
    if wrong := next(filter(None, map(problem, checks)), None):
        raise ValueError(wrong)
    item = Item(messages=line.messages, wanted=(), output_tokens=line.output, tools=line.tools)
    return Own(
        name=line.id or fallback,
        task=line.task,
        item=item,
        grade=partial(grade_all, checks),
        said_context=line.context,
    )


def _bucket(item: Item) -> int:
    tokens = sum(map(len, texts(item))) / CHARACTERS_A_TOKEN + item.output_tokens
    length = _SHORTEST
    while length < tokens:
        length *= 2
    return length
