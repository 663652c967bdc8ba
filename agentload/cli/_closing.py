"""End a decision on the screen: what to do, why, the figures, the next step; the report has all.

No sentence and no row is cut: what does not fit is left out whole, and the last line says where
the rest is.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

from agentload.cli._lazy import fold_command
from agentload.model.record import Record
from agentload.report.parts import Cell, Document, Step
from agentload.visible import columns, visible

MOST: Final = 25
"""Most lines: what a terminal shows at once."""
_CELL: Final = 40
_FIRST_CELL: Final = 42
_ELSEWHERE: Final = ("verdict", "accuracy, largest drop")
"""Rows that the headline or the report has."""
_SAID: Final = "accuracy (published"
"""Row of a criterion that repeats the reason above it."""
_WHOLE: Final = re.compile(r"\[[^\]]*\]| ↑")
"""What a line of a cell does not end within."""
_STOP: Final = re.compile(r"(?<=[.;]) ")
"""Where a statement ends, unless a bracket is open."""


class _Part(Record, kw_only=False):
    """Hold lines that stay together; those of the highest *rank* are left out first.

    In this order go: further rows of the figures (7), what steps are for and what questions took
    (6), the coverage (5), later steps (4), empty lines (3), the second step (2), the commands of
    screenings and further criteria (1).
    """

    lines: Sequence[str]
    rank: int = 0
    """0 is never left out."""


_GAP: Final = _Part(("",), rank=3)


def closing(
    document: Document,
    *,
    steps: Sequence[Step],
    notes: Sequence[str],
    took: str,
    report: Path,
    width: int,
    most: int = MOST,
) -> str:
    """Return the end of a decision in at most *most* lines.

    The *steps* come next, the most urgent first; *notes* say what is spent and left, and *took*
    what each question took.
    """
    covers = f"Covers: {document.coverage}" if document.coverage else ""
    parts = [
        _Part([_first_sentence(document.banner)]),
        _Part(_wrap(document.subject, width)),
        _GAP,
        _Part([document.statement]),
        _Part(whole_statements(document.why, width, most=3)),
        *_screening_parts(document, width),
        _GAP,
        *_figures(document, width),
        _GAP,
        _Part(whole_statements(f"How sure? {document.sure.text}", width, most=2)),
        _Part(whole_statements(covers, width, most=1), rank=5),
        *_next_steps([each for each in steps if each not in document.screened], width),
        *(_Part(whole_statements(note, width, most=2)) for note in notes),
        _Part(whole_statements(took, width, most=2), rank=6),
        _Part([f"Report, with all that is not here: {report}"]),
    ]
    return visible("\n".join(line for part in _fitting(parts, most) for line in part.lines))


def _fitting(parts: Sequence[_Part], most: int) -> Sequence[_Part]:
    """Leave out parts until the lines fit, of equal ones the last first."""
    kept = list(parts)
    while sum(len(part.lines) for part in kept) > most and any(part.rank for part in kept):
        last = max(range(len(kept)), key=lambda at: (kept[at].rank, at))
        del kept[last]
    return kept


def _screening_parts(document: Document, width: int) -> Iterator[_Part]:
    """Yield what screenings found, each once, with the command that follows it up."""
    for each in {each.text: each for each in document.screened}.values():
        yield _Part(whole_statements(each.text, width, most=2))
        if each.command is not None:
            yield _Part(fold_command(f"    {each.command}", width).split("\n"), rank=1)


def _next_steps(steps: Sequence[Step], width: int) -> Iterator[_Part]:
    """Yield each next step: its command where there is one, and what it is for if that fits."""
    for at, step in enumerate(steps):
        rank = min(2 * at, 4)  # the second is worth more than empty lines, a third is not
        title = ["Do this next:"] if at == 0 else []
        text = [f"  {line}" for line in whole_statements(step.text, width - 2, most=2)]
        if step.command is None:
            yield _Part([*title, *text], rank=rank)
            continue
        if title:
            yield _Part(title)
        yield _Part(text, rank=6)
        yield _Part(fold_command(f"    {step.command}", width).split("\n"), rank=rank)


def _figures(document: Document, width: int) -> Iterator[_Part]:
    """Yield the table of the criteria, then as many further rows of the table of arms as fit."""
    if not document.criteria.rows:
        return
    rows = [*document.criteria.rows]
    rows += [each for each in document.arms.rows if each not in rows and not _is_elsewhere(each)]
    table = document.criteria
    texts = [table.columns, *(tuple(_brief(cell.text) for cell in row) for row in rows)]
    sizes = _sizes(texts, width)
    folded = [_row_lines(row, sizes) for row in texts]
    lines = columns([line for row in folded for line in row])
    for at, row in enumerate(folded):
        repeats_reason = texts[at][0].startswith(_SAID)
        is_of_arms = at > len(table.rows)  # the head is row 0
        rank = 0 if at <= 1 else 1  # the head and the first criterion
        if is_of_arms or repeats_reason:
            rank = 7
        yield _Part(tuple(islice(lines, len(row))), rank=rank)


def _brief(text: str) -> str:
    """Leave out what stands in brackets behind why something was not measured."""
    return text.partition(" (")[0] if text.startswith("not measured: ") else text


def _row_lines(row: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the lines of a row whose columns have these sizes."""
    cells = [_cell(*each) for each in zip(row, sizes, strict=True)]
    return [*zip_longest(*cells, fillvalue="")]


def _is_elsewhere(row: Sequence[Cell]) -> bool:
    return row[0].text.startswith(_ELSEWHERE)


def _sizes(texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return how wide each column may be: the widest ones give way until the screen has all."""
    longest = [max(map(len, column)) for column in zip(*texts, strict=True)]
    sizes = [min(each, _CELL) for each in longest]
    sizes[0] = min(longest[0], _FIRST_CELL)
    gaps = 2 * (len(sizes) - 1)
    while sum(sizes) + gaps > width and max(sizes) > 1:
        widest = sizes.index(max(sizes))
        sizes[widest] -= 1
    return sizes


def whole_statements(text: str, width: int, *, most: int) -> list[str]:
    """Return the statements of a text that fit into *most* lines, the first one always."""
    said = ""
    for part in _statements(text):
        longer = f"{said} {part}" if said else part
        if said and len(_wrap(longer, width)) > most:
            break
        said = longer
    return _wrap(f"{said[:-1]}." if said.endswith(";") else said, width)


def _cell(text: str, width: int) -> list[str]:
    """Wrap the text of a cell; an interval stays whole, and an arrow with the word before it."""
    together = _WHOLE.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    lines = textwrap.wrap(together, width) or [""]
    return [each.replace("\N{NO-BREAK SPACE}", " ") for each in lines]


def _wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text."""
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
