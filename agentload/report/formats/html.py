"""Render a document as one HTML file: no network, no library,
readable without scripts, in light and dark, on a phone and on paper.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentload.report.charts.data import csv, vega_lite
from agentload.report.charts.draw import FILTERS
from agentload.report.labels import slug
from agentload.report.parts import Document
from agentload.visible import visible

_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|pp|ms|s|min|h|USD|TB/s|calls?|agents?)(?:\W|$))")
_INSIDE = re.compile(r", (?=[^\[(]*[\])])")


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the page; it needs no other file."""
    yield "decision.html", html(document)


def html(document: Document) -> str:
    """Render a document."""
    # Our own files, not a reader's words: Markup leaves them as they are.
    return (
        environment()
        .get_template("decision.html.j2")
        .render(
            document=document,
            style=Markup(style()),  # noqa: S704
            script=Markup(script()),  # noqa: S704
            policy=security_policy(),
        )
    )


def style() -> str:
    """Return the style sheet of every page that has charts."""
    return "".join(_text(name) for name in ("palette.css", "chart.css", "page.css"))


def script() -> str:
    """Return the script that lets charts answer to pointer and keyboard."""
    return _text("page.js")


def security_policy(*, styled: str | None = None) -> str:
    """Return a content security policy that runs exactly our script and
    fetches nothing: names and errors in a report come from outside.
    """
    ours = f"style-src {_hash(styled or style())}; script-src {_hash(script())}"
    return f"default-src 'none'; img-src data:; {ours}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def environment(loader: BaseLoader | None = None) -> Environment:
    """Return what renders HTML templates, those of reports
    unless others are named, with what they need to place charts.
    """
    own = loader or PackageLoader("agentload.report")
    made = Environment(
        loader=own,
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        **FILTERS,
        "tied": tied,
        "slug": slug,
        "csv": csv,
        "vega": lambda chart: json.dumps(vega_lite(chart)),
    }
    return made


def shown(value: object) -> object:
    """Return what a template shows of a value: of a
    text each character, and nothing that it does.
    """
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def tied(words: str) -> str:
    """Tie a number to its unit and an interval into one piece,
    so that a narrow column breaks between figures only.
    """
    return _UNIT.sub("\N{NO-BREAK SPACE}", _INSIDE.sub(",\N{NO-BREAK SPACE}", words))


def _text(name: str) -> str:
    return (resources.files("agentload.report") / "templates" / name).read_text(encoding="utf-8")
