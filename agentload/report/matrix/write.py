"""Write the page of a matrix: Markdown, one HTML file, and JSON with the figures behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agentload.report.formats.html import security_policy, style, tied
from agentload.report.formats.json import plain
from agentload.report.formats.md import environment as markdown_environment
from agentload.report.matrix.parts import Page

FORMAT: Final = "agentload-matrix/1"
WIDE: Final = "body { max-width: 100rem; }\n"
"""A record has many columns."""


def write(page: Page, folder: Path) -> tuple[Path, ...]:
    """Write `matrix.md`, `matrix.html` and `matrix.json`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for name, text in (("matrix.md", markdown(page)), ("matrix.html", html(page)), ("matrix.json", json(page))):
        (folder / name).write_text(text, encoding="utf-8")
        out.append(folder / name)
    return tuple(out)


def markdown(page: Page) -> str:
    """Render the page for GitHub and terminals."""
    text = markdown_environment().get_template("matrix.md.j2").render(page=page)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def html(page: Page) -> str:
    """Render the page as one file that needs no other."""
    environment = Environment(
        loader=PackageLoader("agentload.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"tied": tied}
    styled = style() + WIDE
    # Our own style sheet, not a reader's words.
    return environment.get_template("matrix.html.j2").render(page=page, style=Markup(styled), policy=security_policy(styled=styled))  # noqa: S704


def json(page: Page) -> str:
    """Render the record for machines."""
    said = {
        "format": FORMAT,
        "title": page.title,
        "lists": {each.word: each.items for each in page.lists} | {"no difference": page.no_difference},
        "models": page.models,
        "record": page.rows,
        "missing": page.missing,
        "notes": page.notes,
    }
    return msgspec.json.format(msgspec.json.encode(said, enc_hook=plain), indent=2).decode() + "\n"
