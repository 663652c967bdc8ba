"""Render the first screen of a document as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from agentload.report.parts import Document, Table

_MARKS: Final = {"ok": "✓", "bad": "✗", "unknown": "?"}


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the text as a file."""
    yield "decision.txt", text(document)


def text(document: Document) -> str:
    """Render what the first screen of a report says."""
    lists = [f"{listing.heading}: {'; '.join(listing.items) or 'none'}" for listing in document.lists]
    if document.no_difference:
        lists.append(f"No difference for: {'; '.join(document.no_difference)}")
    blocks = (
        [document.banner],
        [f"{document.title} {document.model}, {document.where}: {document.headline}"],
        [f"{answer.question}: {answer.word}{f', {answer.because}' if answer.because else ''}" for answer in document.answers],
        _table(document.server),
        _table(document.classes) if document.classes else [],
        lists,
        [f"{label}{'' if label.endswith('?') else ':'} {words}" for label, words in document.asides],
        ["Why believe it:", *(f"  {_MARKS[check.state]} {check.text}" for check in document.belief)],
        ["Do now:", *(f"  {step.text}{f' {step.command}' if step.command else ''}" for step in document.do_now)] if document.do_now else [],
        [f"Roll back if: {document.roll_back}"] if document.roll_back else [],
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(table: Table) -> list[str]:
    rows = [table.columns, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ["  ".join(words.ljust(width) for words, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, table.note] if table.note else lines
