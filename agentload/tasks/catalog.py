"""Find tasks and their variants, and make items."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from agentload.errors import AgentloadError, UsageError, nearest
from agentload.model.record import Record
from agentload.plugins import Broken, Plugins, generator, help_of
from agentload.prompts.tokenizer import WORD_TOKENS, Part, Tokenizer
from agentload.tasks import Grade, Item, texts

PLUGINS: Final = Plugins(room="agentload.tasks", kind="task", needs=("generate", "grade"))
_ATTEMPTS: Final = 10


class Task(Record):
    """A generator of items with one set of options, and its grader."""

    name: str
    help: str
    options: Mapping[str, object]
    has_depth: bool
    """Whether the answer is at one place in the context, which can be chosen."""
    generate: Callable[..., Item]
    grade: Callable[[str, Item], Grade]

    def item(
        self,
        *,
        seed: int,
        context: int,
        depth: float | None,
        number: int,
        tokenizer: Tokenizer = WORD_TOKENS,
    ) -> Item:
        """Return the item of these arguments; with its
        answer cap it is never longer than *context*.
        """
        room = context
        for attempt in range(_ATTEMPTS):
            rng = generator(f"{seed}\0t{self.name}\0{context}\0{depth}\0{number}")
            item = self.generate(
                rng, context=room, depth=depth, tokenizer=tokenizer, **self.options
            )
            # A haystack's pieces are estimated from a sample; together they may cost a little more.
            over = request_tokens(item, tokenizer) - context
            if over <= 0:
                return item
            room -= over << attempt + 1  # a piece may be far larger than the excess
        raise UsageError(
            f"task '{self.name}' does not fit into {context} tokens", hint="--contexts 4k..128k"
        )


def request_tokens(item: Item, tokenizer: Tokenizer) -> int:
    """Count the tokens of a request and its answer cap."""
    parts: list[Part] = ["prompt", "systemless"]
    parts.extend("assistant" if each["role"] == "assistant" else "user" for each in item.messages)
    if item.tools:
        parts.append("tools")
        parts.extend("schema" for _ in item.tools)
    said = sum(map(tokenizer.count, texts(item)))
    schemas = tokenizer.count(json.dumps(item.tools)) if item.tools else 0
    return said + schemas + sum(map(tokenizer.frame, parts)) + item.output_tokens


def names() -> tuple[str, ...]:
    """List the tasks and their variants, sorted."""
    return tuple(sorted(_tasks()))


def task(name: str) -> Task:
    """Return the task of that name; raise `UsageError` naming the nearest if there is none."""
    known = _tasks()
    if name in known:
        return known[name]
    if name in PLUGINS.names():
        _variants(name)  # explains why it is not listed
    raise UsageError(f"no task '{name}'", hint=nearest(name, tuple(sorted(known))))


@cache
def _tasks() -> Mapping[str, Task]:
    found: dict[str, Task] = {}
    for made in PLUGINS.every(_variants):
        if isinstance(made, Broken):
            continue
        for each in made:
            found.setdefault(each.name, each)
    return found


def _variants(name: str) -> tuple[Task, ...]:
    made = PLUGINS.load(name)
    variants = getattr(made, "VARIANTS", {name: {}})
    if strange := next(
        (each for each in variants if each != name and not each.startswith(f"{name}-")), None
    ):
        raise AgentloadError(
            f"task '{name}': its variant '{strange}' must be called '{name}-…', so that "
            "names stay unique"
        )
    return tuple(
        Task(
            name=variant,
            help=help_of(made),
            options=options,
            has_depth=getattr(made, "HAS_DEPTH", True),
            generate=made.generate,
            grade=made.grade,
        )
        for variant, options in variants.items()
    )
