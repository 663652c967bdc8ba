"""Spread starts that share a stamp over the time to the next stamp."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from agentload.importers.parts.grouped import Row

R = TypeVar("R", bound=Row)


def as_stamped(groups: Iterable[Sequence[R]]) -> Iterator[tuple[Sequence[R], float]]:
    """Pair each group with its own stamp."""
    return ((group, group[0].at_s) for group in groups)


def spread(groups: Iterable[Sequence[R]]) -> Iterator[tuple[Sequence[R], float]]:
    """Pair each group with a start of its own: n groups at one stamp start at even distances before the next stamp of the grid.

    The grid is the smallest distance of stamps so far, so that nothing is moved into a pause.
    """
    step: float | None = None
    held: list[Sequence[R]] = []
    for at_s, same in groupby(groups, key=lambda group: group[0].at_s):
        if held:
            gap = at_s - held[0][0].at_s
            step = gap if step is None else min(step, gap)
        yield from _placed(held, step)
        held = list(same)
    yield from _placed(held, step)


def _placed(held: Sequence[Sequence[R]], step: float | None) -> Iterator[tuple[Sequence[R], float]]:
    for number, group in enumerate(held):
        yield group, group[0].at_s + (step or 0.0) * number / len(held)
