"""Export a trace in the format of another program.

Without a format, the formats are listed; with a format alone, its help and options.

For example:

    agentload trace export mooncake mine.jsonl -o mine.mooncake.jsonl

    agentload trace export openai-batch mine.jsonl model=NAME --text mine.text.jsonl -o batch.jsonl
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli.trace._files import opened
from agentload.cli.trace._lines import counted
from agentload.cli.trace._options import describe, list_all, named
from agentload.errors import UsageError
from agentload.exporters import catalog
from agentload.importers.parts.intake import Kept, read_texts
from agentload.plugins import checked
from agentload.tracefile.files import write_lines


def run(
    *,
    format: Annotated[str | None, typer.Argument(help="The format; none lists them.")] = None,
    trace: Annotated[str | None, typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin.")] = None,
    given: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the format.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
    text: Annotated[Path | None, typer.Option(help="Literal texts that `trace import --with-text` wrote beside the trace.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print lists as JSON.")] = False,
) -> None:
    if format is None:
        list_all(catalog.every(), json=json)
        return
    exporter = catalog.exporter(format)
    if trace is None:
        describe(exporter, json=json)
        return
    options = checked(exporter.name, exporter.options, named(given or [], hint=f"agentload trace export {format}"))
    kept = None
    if text is not None:
        if not exporter.speaks:
            raise UsageError(f"--text: '{exporter.name}' holds no words", hint="agentload trace export FORMAT TRACE without --text")
        kept = options["texts"] = Kept(read_texts(text))
    write_lines(out, exporter.lines(opened(trace), **options))
    if kept is not None:
        print(
            f"words: those of {counted(len(kept.found), 'content')} are the source's, all others drawn with their lengths", file=sys.stderr
        )
