"""Render the first screen of a document as plain text, for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from agentload.report.parts import Document, Files, Step, Table
from agentload.visible import columns, visible


def files(document: Document) -> Files:
    """Yield the text as a file."""
    yield "decision.txt", text(document)


def text(document: Document) -> str:
    """Render what the first screen of a report says."""
    blocks = map("\n".join, _blocks(document))
    return visible("\n\n".join(blocks) + "\n")


def _blocks(document: Document) -> Iterator[Iterable[str]]:
    """Yield the lines of each paragraph."""
    yield (document.banner,)
    yield (document.subject,)
    yield (document.statement, document.why)
    if document.arms.rows:
        yield _table(document.arms)
    yield (f"How sure? {document.sure.text}", *_reasons_line(document.sure.reasons))
    if document.do_now:
        yield ("Do this next:", *chain.from_iterable(map(_step, document.do_now)))
    for label, words in document.facts:
        yield (f"{label}: {words}",)


def _reasons_line(reasons: Sequence[str]) -> Iterator[str]:
    """Yield what keeps the effect from being more certain, if anything does."""
    if reasons:
        yield f"  Noted: {'; '.join(reasons)}."


def _step(step: Step) -> Iterator[str]:
    """Yield the lines of a step: what to do with its cost, and the command."""
    cost = f" ≈ {step.cost}." if step.cost else ""
    yield f"  {step.text}{cost}"
    if step.command:
        yield f"    {step.command}"


def _table(table: Table) -> Iterator[str]:
    """Yield the lines of a table, and its note."""
    rows = [[cell.text for cell in row] for row in table.rows]
    yield from columns((table.columns, *rows))
    if table.note:
        yield table.note
