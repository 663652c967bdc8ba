"""Write a report's files into a folder."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from agentload.errors import UsageError
from agentload.plugins import Plugins
from agentload.report.parts import Document, Rollout

NAMES: Final = ("canary.yaml", "alerts.yaml", "rollback.md")
MARK: Final = "agentload canary"
"""In the first line of every such file, so that a later report knows its own from yours."""
_RELEASED: Final = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


def beside(rollout: Rollout) -> tuple[tuple[str, str], ...]:
    """Return each file's name and text."""
    environment = Environment(
        loader=PackageLoader("agentload.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # YAML and Markdown: every value passes `quoted`
    )
    # A JSON string is a YAML string.
    environment.filters["quoted"] = lambda words: json.dumps(str(words), ensure_ascii=False)
    released = rollout.version is not None and _RELEASED.fullmatch(rollout.version) is not None
    image = f"vllm/vllm-openai:v{rollout.version}" if released else "IMAGE"
    return tuple(
        (
            name,
            environment.get_template(f"{name}.j2").render(rollout=rollout, image=image, mark=MARK),
        )
        for name in NAMES
    )


USUAL: Final = ("md", "html", "json")
_FORMATS: Final = Plugins(room="agentload.report.formats", kind="format", needs=("files",))


def formats() -> tuple[str, ...]:
    """List the formats, sorted."""
    return _FORMATS.names()


def write(document: Document, folder: Path, *, formats: Sequence[str] = USUAL) -> tuple[Path, ...]:
    """Write the report, and the canary's files if there is one; return the paths.

    Raises `UsageError` on a format that does not exist.
    """
    out = []
    for name, text in _files(document, formats):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        out.append(path)
    if document.rollout is None:
        _withdraw(folder)
    return tuple(out)


def _files(document: Document, wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    known = formats()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"no format '{unknown[0]}'", hint=f"any of: {','.join(known)}")
    for name in wanted:
        yield from _FORMATS.load(name).files(document)
    if document.rollout is not None:
        yield from beside(document.rollout)


def _withdraw(folder: Path) -> None:
    """Remove the canary of an earlier decision: a manifest
    must not outlive the verdict that it rests on.
    """
    for name in NAMES:
        path = folder / name
        if path.is_file() and MARK in path.read_text(encoding="utf-8").partition("\n")[0]:
            path.unlink()
