"""End a decision on the screen: what to do, why, the figures, the next step; the report has all.

No sentence and no row is cut: what does not fit is left out whole, and the last line says where
the rest is.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from agentload.cli._lazy import fold_command
from agentload.report.parts import Document, Step, Table
from agentload.visible import columns, visible

MOST: Final = 25
"""Most lines: what a terminal shows at once."""
_ROWS: Final = 7
_CELL: Final = 40
_FIRST_CELL: Final = 34
_ELSEWHERE: Final = ("verdict", "accuracy, largest drop")
"""Rows that the headline or the report has."""
_STOP: Final = re.compile(r"(?<=[.;]) ")
"""Where a statement ends, unless a bracket is open."""


def closing(document: Document, *, notes: Sequence[str], report: Path, width: int) -> str:
    """Return the end of a decision in at most `MOST` lines; *notes* say what is spent and left."""
    subject = ", ".join((f"{document.title} {document.model}", *document.about))
    head = [
        _first_sentence(document.banner),
        *_wrapped(subject, width),
        "",
        f"{document.headline[:1].upper()}{document.headline[1:]}",
        *whole_statements(document.why, width, most=3),
        "",
    ]
    believe = whole_statements(f"How sure? {document.sure.text}", width, most=2)
    if document.coverage:
        believe += whole_statements(f"Covers: {document.coverage}", width, most=1)
    spent = [line for note in notes for line in whole_statements(note, width, most=2)]
    end = [*spent, f"Report, with all that is not here: {report}"]
    room = MOST - len(head) - len(believe) - len(end)
    first, *others = _next_steps(document.do_now, width) or [[]]
    figures = _figures(document.arms, width, room=room - len(first))
    steps = list(first)
    for step in others:
        if len(figures) + len(steps) + len(step) <= room:
            steps += step
    return visible("\n".join((*head, *figures, *believe, *steps, *end)))


def _next_steps(steps: Sequence[Step], width: int) -> list[list[str]]:
    """Return the lines of each next step: its command where there is one."""
    laid = []
    for step in steps:
        if step.command is None:
            lines = whole_statements(f"  {step.text}", width, most=1)
        else:
            lines = fold_command(f"    {step.command}", width).split("\n")
        laid.append(lines)
    return [["Do this next:", *laid[0]], *laid[1:]] if laid else []


def _figures(table: Table, width: int, *, room: int) -> list[str]:
    """Return the first rows of the table of arms, as many as fit, and an empty line."""
    if not table.rows:
        return []
    rows = [row for row in table.rows if not row[0].text.startswith(_ELSEWHERE)]
    head = table.columns[0].partition("; ")[0]  # what is better is clear from the rows' arrows
    texts = [
        (head, *table.columns[1:]),
        *(tuple(cell.text for cell in row) for row in rows[:_ROWS]),
    ]
    sizes = _sizes(texts, width)
    lines: list[tuple[str, ...]] = []
    for row in texts:
        folded = [textwrap.wrap(*each) or [""] for each in zip(row, sizes, strict=True)]
        height = max(map(len, folded))
        if len(lines) + height >= room:
            break
        lines += zip(*(each + [""] * (height - len(each)) for each in folded), strict=True)
    return [*columns(lines), ""] if lines else []


def _sizes(texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return how wide each column may be: the widest ones give way until the screen has all."""
    first, *others = [max(map(len, column)) for column in zip(*texts, strict=True)]
    sizes = [min(first, _FIRST_CELL), *(min(each, _CELL) for each in others)]
    while sum(sizes) + 2 * len(others) > width and max(sizes) > 1:
        sizes[sizes.index(max(sizes))] -= 1
    return sizes


def whole_statements(text: str, width: int, *, most: int) -> list[str]:
    """Return the statements of a text that fit into *most* lines, the first one always."""
    said = ""
    for part in _statements(text):
        longer = f"{said} {part}" if said else part
        if said and len(_wrapped(longer, width)) > most:
            break
        said = longer
    return _wrapped(f"{said[:-1]}." if said.endswith(";") else said, width)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _statements(text: str) -> Iterator[str]:
    """Yield the sentences of a text and their halves; what stands in brackets stays together."""
    said = ""
    for part in _STOP.split(text):
        said = f"{said} {part}" if said else part
        if all(said.count(start) == said.count(end) for start, end in ("()", "[]")):
            yield said
            said = ""
    if said:
        yield said


def _first_sentence(text: str) -> str:
    first, stop, _ = text.partition(". ")
    return f"{first}." if stop else text
