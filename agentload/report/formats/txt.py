"""Render the first screen of a document as plain text, for a terminal."""

from collections.abc import Iterator, Sequence

from agentload.report.parts import Document, Files, Step, Table
from agentload.visible import columns, visible


def files(document: Document) -> Files:
    """Yield the text as a file."""
    yield "decision.txt", text(document)


def text(document: Document) -> str:
    """Render what the first screen of a report says."""
    blocks = map("\n".join, _blocks(document))
    return visible("\n\n".join(blocks) + "\n")


def _blocks(document: Document) -> Iterator[Sequence[str]]:
    """Yield the lines of each paragraph."""
    yield (document.banner,)
    yield (document.subject,)
    yield (document.statement, document.why)
    if document.arms.rows:
        yield _table(document.arms)
    yield (f"How sure? {document.sure.text}", *_reasons_line(document.sure.reasons))
    if document.do_now:
        yield ("Do this next:", *(line for step in document.do_now for line in _step(step)))
    for label, words in document.facts:
        yield (f"{label}: {words}",)


def _reasons_line(reasons: Sequence[str]) -> Iterator[str]:
    """Yield what keeps the effect from being more certain, if anything does."""
    if reasons:
        yield f"  Noted: {'; '.join(reasons)}."


def _step(step: Step) -> Iterator[str]:
    cost = f" ≈ {step.cost}." if step.cost else ""
    yield f"  {step.text}{cost}"
    if step.command:
        yield f"    {step.command}"


def _table(table: Table) -> tuple[str, ...]:
    rows = (tuple(cell.text for cell in row) for row in table.rows)
    note = (table.note,) if table.note else ()
    return (*columns((table.columns, *rows)), *note)
