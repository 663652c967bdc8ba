"""Write a report's files into a folder; the only file here that touches the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from agentload.report.beside import MARK, NAMES, beside
from agentload.report.charts.draw import picture
from agentload.report.html import html
from agentload.report.json import json
from agentload.report.markdown import chart_path, markdown
from agentload.report.parts import Document

Format: TypeAlias = Literal["md", "html", "json"]
FORMATS: Final[tuple[Format, ...]] = ("md", "html", "json")
STEM: Final = "decision"


def write(document: Document, folder: Path, *, formats: tuple[Format, ...] = FORMATS) -> tuple[Path, ...]:
    """Write `decision.md`, `.html`, `.json`, the charts of the first, and the canary's files if there is one; return the paths."""
    out = []
    for name, text in _files(document, formats):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        out.append(path)
    if document.rollout is None:
        _withdraw(folder)
    return tuple(out)


def _files(document: Document, formats: tuple[Format, ...]) -> Iterator[tuple[str, str]]:
    for wanted in formats:
        match wanted:
            case "md":
                yield f"{STEM}.md", markdown(document)
                yield from ((chart_path(chart), picture(chart)) for group in document.groups for chart in group.charts)
            case "html":
                yield f"{STEM}.html", html(document)
            case "json":
                yield f"{STEM}.json", json(document)
    if document.rollout is not None:
        yield from beside(document.rollout)


def _withdraw(folder: Path) -> None:
    """Remove the canary of an earlier decision: a manifest must not outlive the verdict that it rests on."""
    for name in NAMES:
        path = folder / name
        if path.is_file() and MARK in path.read_text(encoding="utf-8").partition("\n")[0]:
            path.unlink()
