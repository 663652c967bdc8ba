"""Find tasks by file name, each with its variants, and make items of them."""

from __future__ import annotations

import hashlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Final

from agentload.errors import UsageError
from agentload.prompts.tokenizer import WORD_TOKENS, Part, Tokenizer
from agentload.tasks.item import Grade, Item, texts

_ATTEMPTS: Final = 10
_NO_TASKS: Final = frozenset({"catalog", "item", "checks", "custom"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A generator of items under one set of options, and the grader of their answers."""

    name: str
    help: str
    options: Mapping[str, object]
    has_depth: bool
    """What is asked for stands at one place of the context, which can be chosen."""
    generate: Callable[..., Item]
    grade: Callable[[str, Item], Grade]

    def item(self, *, seed: int, context: int, depth: float | None, number: int, tokenizer: Tokenizer = WORD_TOKENS) -> Item:
        """Return an item that depends on the arguments alone, and with its answer's cap is never longer than *context*."""
        room = context
        for attempt in range(_ATTEMPTS):
            rng = _seeded(f"{seed}\0t{self.name}\0{context}\0{depth}\0{number}")
            item = self.generate(rng, context=room, depth=depth, tokenizer=tokenizer, **self.options)
            # Pieces of a haystack are counted by a sample; all of them together may cost a little more.
            over = used(item, tokenizer) - context
            if over <= 0:
                return item
            room -= over << attempt + 1  # a piece may be far larger than what is over
        raise UsageError(f"task '{self.name}' does not fit into {context} tokens", hint="--contexts 4k..128k")


def used(item: Item, tokenizer: Tokenizer) -> int:
    """Count the tokens of a request with its answer's cap."""
    parts: list[Part] = ["prompt", "systemless"]
    parts.extend("assistant" if each["role"] == "assistant" else "user" for each in item.messages)
    if item.tools:
        parts.append("tools")
        parts.extend("schema" for _ in item.tools)
    said = sum(tokenizer.count(text) for text in texts(item))
    schemas = tokenizer.count(json.dumps(item.tools)) if item.tools else 0
    return said + schemas + sum(map(tokenizer.frame, parts)) + item.output_tokens


def names() -> tuple[str, ...]:
    """List the tasks and their variants, sorted."""
    return tuple(sorted(_tasks()))


def task(name: str) -> Task:
    """Return the task of that name; raise `UsageError` naming the nearest if there is none."""
    known = _tasks()
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        raise UsageError(
            f"no task '{name}'", hint=f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known))}"
        )
    return known[name]


@cache
def _tasks() -> Mapping[str, Task]:
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.ispkg or module.name in _NO_TASKS:
            continue
        made = import_module(f"agentload.tasks.{module.name}")
        for name, options in getattr(made, "VARIANTS", {module.name: {}}).items():
            found[name] = Task(
                name=name,
                help=inspect.cleandoc(made.__doc__ or ""),
                options=options,
                has_depth=getattr(made, "HAS_DEPTH", True),
                generate=made.generate,
                grade=made.grade,
            )
    return found


def _seeded(key: str) -> Random:
    return Random(int.from_bytes(hashlib.shake_256(key.encode()).digest(32)))
