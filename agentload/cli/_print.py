"""Print results on standard output, for people and for machines, and what is only for somebody who watches on standard error."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

ABSENT = "–"


def print_json(value: object) -> None:
    """Print a value as indented JSON: dataclasses by field, what is not a number (NaN, infinity) as null.

    A verb with `--json` prints one document with it and nothing else to stdout.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def notice(text: str) -> None:
    """Say something on standard error."""
    print(text, file=sys.stderr, flush=True)


def transient(line: str) -> None:
    """Draw a line of progress on a terminal in the place of the one before; an empty one takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print text in columns."""
    print(*table(head, rows), sep="\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: columns of figures to the right, others to the left, none wider than it must be."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    right = [bool(rows) and all(_is_figure(row[place]) for row in rows) for place in range(len(head))]
    for line in lines:
        cells = (cell.rjust(width) if figure else cell.ljust(width) for cell, width, figure in zip(line, widths, right, strict=True))
        yield "  ".join(cells).rstrip()


def when(at_ns: int | None) -> str:
    """Write an instant of the wall clock."""
    return ABSENT if at_ns is None else f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d %H:%M}"


def _is_figure(cell: str) -> bool:
    return re.fullmatch(r"[\d.,]+%?|–", cell) is not None
