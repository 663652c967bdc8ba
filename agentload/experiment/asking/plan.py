"""Which questions an evaluation asks, in which order: every cell of task, length and depth in turn, so that a part is a fair sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from agentload.errors import UsageError
from agentload.tasks import catalog

DEFAULT_TASKS: Final = ("needle", "needle-multikey-2", "tool_log", "json_recall", "exact_copy")
"""Retrieval as published, and what agents do with long contexts; each has one place that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One item of one task; every arm is asked it."""

    task: str
    context: int
    depth: float | None
    number: int
    repetition: int
    item: str
    """Tells the item from others of its task and length; its repetitions bear the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is to be asked."""

    tasks: tuple[str, ...]
    contexts: tuple[int, ...]
    depths: tuple[float, ...]
    items: int
    """Different items in all; each is asked `repetitions` times."""
    repetitions: int = 1
    seed: int = 0
    """Names the items: those of another seed are others."""

    def questions(self) -> tuple[Question, ...]:
        """Return the questions in the order in which they are asked."""
        rounds = range(-(-self.items // self._cells))
        return tuple(each for number in rounds for each in self._round(number))

    @property
    def _cells(self) -> int:
        return len(self.tasks) * len(self.contexts) * len(self.depths)

    def _round(self, number: int) -> Iterator[Question]:
        left = self.items - number * self._cells
        for repetition in range(self.repetitions):
            yield from islice(self._cell_by_cell(number, repetition), left)

    def _cell_by_cell(self, number: int, repetition: int) -> Iterator[Question]:
        # The place moves slowest: a short round still holds every task at every length.
        for place, depth in enumerate(self.depths):
            for task in self.tasks:
                # A task without a depth gets as many items a length as the others.
                own = number if catalog.task(task).has_depth else number * len(self.depths) + place
                at = depth if catalog.task(task).has_depth else None
                name = f"s{self.seed}-{own:04}" if at is None else f"s{self.seed}-d{place:02}-{own:04}"
                for context in self.contexts:
                    yield Question(task=task, context=context, depth=at, number=own, repetition=repetition, item=name)


def asking(*, tasks: Sequence[str], contexts: Sequence[int], depths: int, items: int | None, repetitions: int, seed: int) -> Asking:
    """Check what is to be asked; without a number of items one for every cell. Raises `UsageError`."""
    named = tuple(dict.fromkeys(catalog.task(name).name for name in tasks))
    for name, value in (("--depths", depths), ("--repetitions", repetitions), ("--items", 1 if items is None else items)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, got {value}")
    places = tuple(round(place / (depths - 1), 4) for place in range(depths)) if depths > 1 else (0.5,)
    count = items if items is not None else len(named) * len(contexts) * len(places)
    return Asking(tasks=named, contexts=tuple(contexts), depths=places, items=count, repetitions=repetitions, seed=seed)
