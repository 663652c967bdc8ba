"""Import logs and traces of other programs.

The format is guessed when it is not named; options of the format follow as NAME=VALUE. Without a path, the formats are listed; with a
format alone, its help and options. Only lengths, times, roles, names of tools and keyed hashes of contents leave the source, under a
key that is drawn anew for each import and kept nowhere.

For example:

    agentload trace import ~/.openclaw/agents -o mine.jsonl.zst

    agentload trace import mooncake conversation_trace.jsonl grid=spread -o mooncake.jsonl.zst
"""

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli.trace._options import describe, list_all
from agentload.cli.trace._summary import described
from agentload.errors import UsageError
from agentload.importers import catalog
from agentload.importers.catalog import conversion
from agentload.importers.parts.intake import Texts, beside
from agentload.importers.parts.notes import Tolerance
from agentload.tracefile import write


def run(
    *,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[FORMAT] PATH... [NAME=VALUE]...", help="What to read; none lists the formats.")
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave malformed records out and count them.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Make every oddity an error.")] = False,
    with_text: Annotated[
        bool,
        typer.Option(
            "--with-text", help="Also write the literal text, to FILE.text.jsonl beside the trace: it is as private as the source."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON to stdout.")] = False,
) -> None:
    name, paths, options = _sorted(given or [])
    if not paths and name is None:
        list_all(catalog.every(), json=json)
        return
    if not paths and name is not None:
        describe(catalog.importer(name), json=json)
        return
    if lenient and strict:
        raise UsageError("--lenient and --strict exclude each other")
    if out == "-" and (json or with_text):
        raise UsageError(f"{'--json' if json else '--with-text'} needs a file for the trace", hint="-o FILE")
    tolerance: Tolerance = "lenient" if lenient else "strict" if strict else "normal"
    with _texts(beside(Path(out)) if with_text else None) as texts:
        made = conversion(paths, key=secrets.token_bytes(32), format=name, options=options, tolerance=tolerance, texts=texts)
        write(out, made.trace)
    if json:
        print_json(made.summary)
    else:
        print(described(made.summary, texts=beside(Path(out)) if with_text else None), file=sys.stderr)


@contextmanager
def _texts(path: Path | None) -> Iterator[Texts | None]:
    """Keep texts in a file that appears when the import is complete: no words are left behind by one that failed."""
    if path is None:
        yield None
        return
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            yield Texts(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _sorted(given: list[str]) -> tuple[str | None, list[Path], dict[str, str]]:
    """Tell a format, paths and options apart; what is there as a file is a path whatever it looks like."""
    name: str | None = None
    paths: list[Path] = []
    options: dict[str, str] = {}
    for position, text in enumerate(given):
        option, equals, value = text.partition("=")
        if Path(text).exists():
            paths.append(Path(text))
        elif equals:
            options[option.replace("-", "_")] = value
        elif position == 0 and text.replace("-", "_") in catalog.names():
            name = text.replace("-", "_")
        elif position == 0 and len(given) > 1:
            catalog.importer(text)  # names the nearest format
        else:
            paths.append(Path(text))
    return name, paths, options
