"""Render the first screen of a document as plain text, for a terminal."""

from collections.abc import Iterator
from itertools import zip_longest

from agentload.report.parts import Document, Step, Table
from agentload.visible import visible


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the text as a file."""
    yield "decision.txt", text(document)


def text(document: Document) -> str:
    """Render what the first screen of a report says."""
    sure, reasons = document.sure.level.capitalize(), "; ".join(document.sure.reasons)
    blocks = (
        [document.banner],
        [", ".join((f"{document.title} {document.model}", *document.about))],
        [f"{document.headline[:1].upper()}{document.headline[1:]}", document.why],
        _table(document.arms) if document.arms.rows else [],
        [f"How sure? {sure}{f': {reasons}' if reasons else ''}."],
        ["Do this next:", *(line for step in document.do_now for line in _step(step))]
        if document.do_now
        else [],
        *([f"{label}: {words}"] for label, words in document.facts),
    )
    return visible("\n\n".join("\n".join(block) for block in blocks if block) + "\n")


def _step(step: Step) -> Iterator[str]:
    yield f"  {step.text}{f' ≈ {step.cost}.' if step.cost else ''}"
    if step.command:
        yield f"    {step.command}"


def _table(table: Table) -> list[str]:
    rows = [table.columns, *(tuple(cell.text for cell in row) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = [
        "  ".join(words.ljust(width) for words, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [*lines, table.note] if table.note else lines
