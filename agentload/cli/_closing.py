"""End a decision on the screen: what to do, why, the figures, the next step; the report has all."""

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


def closing(document: Document, *, notes: Sequence[str], report: Path, width: int) -> str:
    """Return the end of a decision in at most `MOST` lines; *notes* say what is spent and left."""
    subject = ", ".join((f"{document.title} {document.model}", *document.about))
    head = [
        _first_sentence(document.banner),
        *_wrapped(subject, width, most=1),
        "",
        f"{document.headline[:1].upper()}{document.headline[1:]}",
        *_wrapped(document.why, width, most=2),
        "",
    ]
    figures = [*_figures(document.arms, width), ""] if document.arms.rows else []
    believe = _wrapped(f"How sure? {document.sure.text}", width, most=1)
    if document.coverage:
        believe += _wrapped(f"Covers: {document.coverage}", width, most=1)
    end = [line for note in notes for line in _wrapped(note, width, most=2)]
    end.append(f"Report: {report}")
    room = MOST - len(head) - len(figures) - len(believe) - len(end)
    steps = _next_steps(document.do_now, room, width)
    return visible("\n".join((*head, *figures, *believe, *steps, *end)))


def _next_steps(steps: Sequence[Step], room: int, width: int) -> Iterator[str]:
    """Yield the next steps that fit into *room* lines, at least one: commands where there are."""
    if not steps:
        return
    yield "Do this next:"
    used = 1
    for number, step in enumerate(steps):
        if step.command is None:
            lines = _wrapped(f"  {_first_sentence(step.text)}", width, most=1)
        else:
            lines = fold_command(f"    {step.command}", width).split("\n")
        used += len(lines)
        if number and used > room:
            return
        yield from lines


def _figures(table: Table, width: int) -> Iterator[str]:
    """Yield the first rows of the table of arms, cut to the width of the screen."""
    rows = [row for row in table.rows if not row[0].text.startswith(_ELSEWHERE)]
    texts = [table.columns, *(tuple(cell.text for cell in row) for row in rows[:_ROWS])]
    others = max(1, len(table.columns) - 1)
    room = (width - _FIRST_CELL - 2 * others) // others
    sizes = (_FIRST_CELL, *[min(_CELL, room)] * others)
    yield from columns([tuple(map(_cut, row, sizes)) for row in texts])


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _wrapped(text: str, width: int, *, most: int) -> list[str]:
    """Return a text in lines of the screen, at most *most*."""
    return textwrap.wrap(text, width, max_lines=most, placeholder=" …", break_on_hyphens=False)


def _first_sentence(text: str) -> str:
    first, stop, _ = text.partition(". ")
    return f"{first}." if stop else text
