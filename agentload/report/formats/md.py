"""Render a document as Markdown that reads well
on GitHub, with its charts as pictures beside it.
"""

import re
from functools import cache
from typing import Final

from jinja2 import Environment

from agentload.report.charts.draw import picture
from agentload.report.charts.spec import Chart
from agentload.report.parts import Cell, Check, Document, Files, Table
from agentload.report.templating import environment
from agentload.visible import visible

_MARKS: Final = {"ok": "✓", "bad": "✗", "unknown": "–"}
# Signs that would format, link or break a table; an underscore
# inside a word formats nothing, nor does a bracket alone.
_SPECIAL: Final = re.compile(r"([\\|*`<~]|(?<!\w)_|_(?!\w)|\](?=[\[(:]))")


class Escaped(str):
    """Markdown that is not escaped again."""

    __slots__ = ()


def files(document: Document) -> Files:
    """Yield the report and the pictures that it shows."""
    yield "decision.md", markdown(document)
    for group in document.groups:
        for chart in group.charts:
            yield chart_path(chart), picture(chart)


def markdown(document: Document) -> str:
    """Render a document."""
    return render("decision.md.j2", document=document)


def render(template: str, **values: object) -> str:
    """Render a template of Markdown."""
    text = _environment().get_template(template).render(**values)
    # A section that is absent leaves its blank lines behind; no value holds a line break.
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def chart_path(chart: Chart) -> str:
    """Return where a chart's picture lies, relative to the Markdown file."""
    return f"charts/{chart.name}.svg"


def escape(words: object) -> str:
    """Return words as Markdown that shows them as they are, on one line."""
    if isinstance(words, Escaped):
        return words
    return _SPECIAL.sub(r"\\\1", visible(re.sub(r"\s*\n\s*", " ", str(words))))


@cache
def _environment() -> Environment:
    made = environment(
        finalize=escape,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown: `finalize` escapes, in Markdown's own way
    )
    made.filters |= {"table": _table, "picture": _picture_link, "code": _code, "mark": _mark}
    return made


def _table(table: Table) -> Escaped:
    rows = [
        [escape(name) for name in table.columns],
        ["---"] * len(table.columns),
        *([_cell(cell) for cell in row] for row in table.rows),
    ]
    return Escaped("\n".join(f"| {' | '.join(row)} |" for row in rows))


def _cell(cell: Cell) -> str:
    if cell.tone == "strong":
        return f"**{escape(cell.text)}**"
    return escape(cell.text)


def _picture_link(chart: Chart) -> Escaped:
    """Return the line that shows a chart's picture."""
    return Escaped(f"![{escape(chart.title)}]({chart_path(chart)})")


def _code(words: str) -> Escaped:
    """Return a code span, fenced by more backticks than it holds."""
    words = visible(words)
    fence = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return Escaped(f"{fence}{pad}{' '.join(words.split())}{pad}{fence}")


def _mark(check: Check) -> Escaped:
    return Escaped(f"{escape(check.text)} {_MARKS[check.state]}")
