"""Render a document as one HTML file.

No network, no library, readable without scripts, in light and dark, on a phone and on paper.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from jinja2 import BaseLoader, Environment
from markupsafe import Markup

from agentload.model.record import Record
from agentload.report import templating
from agentload.report.charts.data import csv, vega_lite
from agentload.report.charts.draw import FILTERS
from agentload.report.charts.forest import ForestRows, first_group, forest_rows
from agentload.report.charts.spec import Chart, Lanes
from agentload.report.labels import slug
from agentload.report.parts import Cell, Document, Files, Group, Table
from agentload.visible import visible

MOST_ABREAST: Final = 4
"""Columns of a table that a chart may stand beside."""
LONG: Final = 30
"""Characters from which on a cell may break into lines."""
_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|pp|ms|s|min|h|USD|TB/s|calls?|agents?)(?:\W|$))")
_INSIDE = re.compile(r", (?=[^\[(]*[\])])")
_FIGURE = re.compile(r"[~<>≤≥±×]? ?[+−-]?\d")


def files(document: Document) -> Files:
    """Yield the page; it needs no other file."""
    yield "decision.html", html(document)


def html(document: Document) -> str:
    """Render a document."""
    in_rows = forest(document)
    picture = picture_of(document)
    repeated = _chart_in_rows(document) if in_rows else None
    groups = [placement(group, picture, repeated) for group in document.groups]
    # Our own files, not a reader's words: Markup leaves them as they are.
    return (
        environment()
        .get_template("decision.html.j2")
        .render(
            document=document,
            forest=in_rows,
            picture=picture,
            placed=groups,
            style=Markup(style()),  # noqa: S704
            script=Markup(script()),  # noqa: S704
            policy=security_policy(),
        )
    )


def forest(document: Document) -> ForestRows | None:
    """Draw the differences of the user's mix into the rows of the table that decides.

    None where nothing was compared, or where the columns of several arms leave no room.
    """
    found = _chart(document, "differences")
    if not isinstance(found, Lanes) or len(found.arms) > 1:
        return None
    mix = first_group(found)
    rows = [row[0].text for row in document.arms.rows]
    return forest_rows(mix, [_row_of(lane, rows) for lane in mix.lanes])


def picture_of(document: Document) -> Chart | None:
    """Return the chart that stands beside the decision.

    It is what each load gives, where two were tried, else how the intervals narrowed.
    """
    return _chart(document, "pareto-tokens") or _chart(document, "looks")


def _chart_in_rows(document: Document) -> Chart | None:
    """Return the chart whose lanes all stand in the rows of the first table, where they do.

    A narrow screen has no room for them there.
    """
    found = _chart(document, "differences")
    if not isinstance(found, Lanes):
        return None
    headings = [lane for lane in found.lanes if not lane.startswith(" ")]
    return found if len(headings) == 1 else None


class Placement(Record):
    """Say how a group stands on the page: its charts with their class, and what is abreast."""

    group: Group
    anchor: str
    charts: tuple[tuple[Chart, str], ...]
    is_abreast: bool
    """One chart stands beside its tables, which leave it room."""
    css: str
    """`narrow` for a group that only a narrow screen has to show."""


def placement(group: Group, picture: Chart | None, repeated: Chart | None) -> Placement:
    """Place a group: *picture* stands beside the decision, *repeated* in the rows of its table."""
    charts = [chart for chart in group.charts if chart is not picture]
    always = [chart for chart in charts if chart is not repeated]
    widest = max((len(table.columns) for table in group.tables), default=math.inf)
    return Placement(
        group=group,
        anchor=slug(group.title),
        charts=tuple((chart, "narrow" if chart is repeated else "") for chart in charts),
        is_abreast=len(always) == 1 and widest <= MOST_ABREAST,
        css="" if group.tables or always else "narrow",
    )


def _chart(document: Document, name: str) -> Chart | None:
    charts = (chart for group in document.groups for chart in group.charts)
    return next((each for each in charts if each.name == name), None)


def _row_of(lane: str, rows: Iterable[str]) -> str | None:
    """Return the first row whose name begins with the lane's."""
    return next((row for row in rows if row.startswith(lane)), None)


def sides(table: Table) -> tuple[str, ...]:
    """Return the class of each column: figures stand at the right, words at the left."""
    return tuple(map(_side, zip(*table.rows, strict=True)))


def _side(column: tuple[Cell, ...]) -> str:
    loud = [cell.text for cell in column if cell.text and cell.tone != "muted"]
    filled = loud or [cell.text for cell in column if cell.text]
    figures = sum(_FIGURE.match(text) is not None for text in filled)
    return "figure" if 3 * figures > len(filled) else "words"


def classes(cell: Cell, side: str) -> str:
    """Return the classes of a cell: its tone, its side, and whether it may break."""
    names = [cell.tone, side]
    if len(cell.text) > LONG:
        names.append("long")
    return " ".join(filter(None, names))


def style() -> str:
    """Return the style sheet of every page that has charts."""
    return "".join(map(templating.text, ("palette.css", "chart.css", "page.css")))


def script() -> str:
    """Return the script that lets charts answer to pointer and keyboard."""
    return templating.text("page.js")


def security_policy(*, styled: str | None = None) -> str:
    """Return a content security policy that runs exactly our script and fetches nothing.

    Names and errors in a report come from outside.
    """
    ours = f"style-src {_hash(styled or style())}; script-src {_hash(script())}"
    return f"default-src 'none'; img-src data:; {ours}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def environment(loader: BaseLoader = templating.OURS) -> Environment:
    """Return what renders HTML templates, those of reports
    unless others are named, with what they need to place charts.
    """
    made = templating.environment(loader, autoescape=True, finalize=show)
    made.filters |= {
        **FILTERS,
        "tied": tie,
        "sides": sides,
        "classes": classes,
        "csv": csv,
        "vega": lambda chart: json.dumps(vega_lite(chart)),
    }
    return made


def show(value: object) -> object:
    """Return what a template shows of a value: of a text each character, and nothing it does.

    Markup is ours, and stays.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def tie(words: str) -> str:
    """Tie a number to its unit and an interval into one piece,
    so that a narrow column breaks between figures only.
    """
    return _UNIT.sub("\N{NO-BREAK SPACE}", _INSIDE.sub(",\N{NO-BREAK SPACE}", words))
