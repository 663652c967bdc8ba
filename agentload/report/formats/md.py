"""Render a document as Markdown that reads well
on GitHub, with its charts as pictures beside it.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentload.report.charts.draw import picture
from agentload.report.charts.spec import Chart
from agentload.report.parts import Cell, Check, Document, Table
from agentload.visible import visible

_MARKS: Final = {"ok": "✓", "bad": "✗", "unknown": "–"}
# Signs that would format, link or break a table; an underscore
# inside a word formats nothing, nor does a bracket alone.
_SPECIAL: Final = re.compile(r"([\\|*`<~]|(?<!\w)_|_(?!\w)|\](?=[\[(:]))")


class Ready(str):
    """Markdown that is not escaped again."""

    __slots__ = ()


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the report and the pictures that it shows."""
    yield "decision.md", markdown(document)
    for group in document.groups:
        for chart in group.charts:
            yield chart_path(chart), picture(chart)


def markdown(document: Document) -> str:
    """Render a document."""
    return rendered("decision.md.j2", document=document)


def rendered(template: str, **values: object) -> str:
    """Render a template of Markdown."""
    text = _environment().get_template(template).render(**values)
    # A section that is absent leaves its blank lines behind; no value holds a line break.
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def chart_path(chart: Chart) -> str:
    """Return where a chart's picture lies, relative to the Markdown file."""
    return f"charts/{chart.name}.svg"


def escaped(words: object) -> str:
    """Return words as Markdown that shows them as they are, on one line."""
    if isinstance(words, Ready):
        return words
    return _SPECIAL.sub(r"\\\1", visible(re.sub(r"\s*\n\s*", " ", str(words))))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("agentload.report"),
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # Markdown: `finalize` escapes, in Markdown's own way
    )
    made.filters |= {"table": _table, "picture": _shown, "code": _code, "mark": _mark}
    return made


def _table(table: Table) -> Ready:
    rows = [
        [escaped(name) for name in table.columns],
        ["---"] * len(table.columns),
        *([_cell(cell) for cell in row] for row in table.rows),
    ]
    return Ready("\n".join(f"| {' | '.join(row)} |" for row in rows))


def _cell(cell: Cell) -> str:
    return f"**{escaped(cell.text)}**" if cell.tone == "strong" else escaped(cell.text)


def _shown(chart: Chart) -> Ready:
    return Ready(f"![{escaped(chart.title)}]({chart_path(chart)})")


def _code(words: str) -> Ready:
    """Return a code span, fenced by more backticks than it holds."""
    words = visible(words)
    fence = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return Ready(f"{fence}{pad}{' '.join(words.split())}{pad}{fence}")


def _mark(check: Check) -> Ready:
    return Ready(f"{escaped(check.text)} {_MARKS[check.state]}")
