"""Hold a row of the tables that compare arms: the reference, and two cells for each other arm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentload.report import format as say
from agentload.report.parts import Cell, in_grey

ABSENT: Final = in_grey(say.ABSENT)
EMPTY: Final = Cell(text="")


@dataclass(frozen=True, slots=True)
class ArmCells:
    """Hold what an arm has of its own, and how that differs from the reference."""

    own: Cell
    change: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold one row of a comparison."""

    name: str
    reference: Cell
    arms: tuple[ArmCells, ...]
    noise: float | None = None
    """By how much two identical servers may differ."""


def row(
    name: str,
    reference: Cell | str | None,
    *,
    own: Sequence[Cell | str | None] = (),
    changes: Sequence[Cell | str | None] = (),
) -> Row:
    """Lay out a row whose arms have figures of their own, changes, or both.

    None is absent; a side that no arm has is empty.
    """
    nothing = [EMPTY] * max(len(own), len(changes))
    cells = []
    for left, right in zip(own or nothing, changes or nothing, strict=True):
        cells.append(ArmCells(_cell(left), _cell(right)))
    return Row(name=name, reference=_cell(reference), arms=tuple(cells))


def _cell(text: Cell | str | None) -> Cell:
    if isinstance(text, Cell):
        return text
    if text is None:
        return ABSENT
    return Cell(text=text)
