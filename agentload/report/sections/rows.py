"""Hold a row of the tables that compare arms: the reference, and two cells for each other arm."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from agentload.model.record import Record
from agentload.report import format as say
from agentload.report.parts import Cell, in_grey

ABSENT: Final = in_grey(say.ABSENT)
EMPTY: Final = Cell(text="")
Printed: TypeAlias = Cell | str | None


class ArmCells(Record, kw_only=False):
    """Hold what an arm has of its own, and how that differs from the reference."""

    own: Cell
    change: Cell


class ArmsRow(Record):
    """Hold one row of a comparison."""

    name: str
    reference: Cell
    arms: tuple[ArmCells, ...]
    noise: float | None = None
    """By how much two identical servers may differ."""


def row(name: str, values: Sequence[Printed] = (), *, changes: Sequence[Printed] = ()) -> ArmsRow:
    """Lay out a row of the *values* of every arm, the reference first, or of *changes*, or of both.

    None is absent; a side that no arm has is empty.
    """
    nothing = [EMPTY] * max(len(values) - 1, len(changes))
    reference, *own = map(_cell, values or [EMPTY, *nothing])
    arms = zip(own, map(_cell, changes or nothing), strict=True)
    return ArmsRow(name=name, reference=reference, arms=tuple(ArmCells(*each) for each in arms))


def _cell(text: Printed) -> Cell:
    if isinstance(text, Cell):
        return text
    return ABSENT if text is None else Cell(text=text)
