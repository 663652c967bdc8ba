"""Render a document in any format, and write a report's files into a folder."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentload.errors import UsageError
from agentload.plugins import Plugins

if TYPE_CHECKING:  # the help of a verb lists the formats, and makes no document
    from agentload.report.parts import Document, Files, Rollout

if TYPE_CHECKING:
    from jinja2 import Environment

NAMES: Final = ("canary.yaml", "alerts.yaml", "rollback.md")
MARK: Final = "agentload canary"
"""In the first line of every such file, so that a later report knows its own from yours."""
_RELEASED: Final = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


def deployment_files(rollout: "Rollout") -> tuple[tuple[str, str], ...]:
    """Return the name and text of each file that belongs to the canary."""
    released = rollout.version is not None and _RELEASED.fullmatch(rollout.version) is not None
    image = f"vllm/vllm-openai:v{rollout.version}" if released else "IMAGE"
    files = []
    for name in NAMES:
        template = _environment().get_template(f"{name}.j2")
        files.append((name, template.render(rollout=rollout, image=image, mark=MARK)))
    return tuple(files)


@cache
def _environment() -> "Environment":
    from agentload.report.templating import environment  # late: most documents have no rollout

    made = environment(
        keep_trailing_newline=True,
        autoescape=False,  # YAML and Markdown: every value passes `quoted`
    )
    # A JSON string is a YAML string.
    made.filters["quoted"] = lambda words: json.dumps(str(words), ensure_ascii=False)
    return made


USUAL: Final = ("md", "html", "json")
_FORMATS: Final = Plugins(room="agentload.report.formats", kind="format", needs=("files",))


def formats() -> tuple[str, ...]:
    """List the formats, sorted."""
    return _FORMATS.names()


def render(document: "Document", format: str) -> str:
    """Render a document as the first file of a format.

    Raises `UsageError` where there is no such format.
    """
    _, text = next(_files(document, format))
    return text


def write(
    document: "Document", folder: Path, *, formats: Sequence[str] = USUAL
) -> tuple[Path, ...]:
    """Write the report, and the canary's files if there is one; return the paths.

    Raises as `render` does.
    """
    files = [file for name in formats for file in _files(document, name)]
    if document.rollout is None:
        _withdraw(folder)
    else:
        files += deployment_files(document.rollout)
    return write_files(folder, files)


def write_files(folder: Path, files: Iterable[tuple[str, str]]) -> tuple[Path, ...]:
    """Write files by name into a folder, which is made, and return their paths."""
    paths = []
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return tuple(paths)


def _files(document: "Document", format: str) -> "Files":
    if format not in formats():
        raise UsageError(f"no format '{format}'", hint=f"any of: {','.join(formats())}")
    yield from _FORMATS.load(format).files(document)


def _withdraw(folder: Path) -> None:
    """Remove the canary of an earlier decision.

    A manifest must not outlive the verdict that it rests on.
    """
    for name in NAMES:
        path = folder / name
        if path.is_file() and MARK in path.read_text(encoding="utf-8").partition("\n")[0]:
            path.unlink()
