"""Set text in columns."""

import re
from collections.abc import Iterator, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: columns of figures to the right, others to the left, none wider than it must be."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    right = [bool(rows) and all(_is_figure(row[place]) for row in rows) for place in range(len(head))]
    for line in lines:
        cells = (cell.rjust(width) if figure else cell.ljust(width) for cell, width, figure in zip(line, widths, right, strict=True))
        yield "  ".join(cells).rstrip()


def _is_figure(cell: str) -> bool:
    return re.fullmatch(r"[\d.,]+%?|–", cell) is not None
