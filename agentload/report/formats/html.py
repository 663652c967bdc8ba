"""Render a document as one HTML file: no network, no library, readable without scripts, in light and dark, on a phone and on paper."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentload.report.charts.draw import inline
from agentload.report.charts.plot import marker
from agentload.report.charts.spec import Chart, legend
from agentload.report.parts import Document

_UNIT = re.compile(r"(?<=[0-9∞]) (?=(?:%|pp|ms|s|min|h|USD|TB/s|calls?|agents?)(?:\W|$))")
_INSIDE = re.compile(r", (?=[^\[(]*[\])])")


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the page; it needs no other file."""
    yield "decision.html", html(document)


def html(document: Document) -> str:
    """Render a document."""
    # Our own files, not a reader's words: Markup leaves them as they are.
    style = "".join(_text(name) for name in ("palette.css", "chart.css", "page.css"))
    script = _text("page.js")
    return (
        _environment()
        .get_template("decision.html.j2")
        .render(
            document=document,
            style=Markup(style),  # noqa: S704
            script=Markup(script),  # noqa: S704
            policy=_policy(style, script),
        )
    )


def _policy(style: str, script: str) -> str:
    """Return a content security policy that runs exactly our script and fetches nothing: names and errors in a report come from outside."""
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agentload.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"drawn": _drawn, "legend": legend, "swatch": _swatch, "tied": tied}
    return environment


def _drawn(chart: Chart) -> Markup:
    return Markup(inline(chart))  # noqa: S704  # the drawing escapes every word it places


def tied(words: str) -> str:
    """Tie a number to its unit and an interval into one piece, so that a narrow column breaks between figures only."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", _INSIDE.sub(",\N{NO-BREAK SPACE}", words))


def _swatch(slot: int) -> Markup:
    mark = marker((6.0, 6.0), slot, "mark")
    return Markup(f'<svg class="series arm-{slot}" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">{mark}</svg>')  # noqa: S704


def _text(name: str) -> str:
    return (resources.files("agentload.report") / "templates" / name).read_text(encoding="utf-8")
