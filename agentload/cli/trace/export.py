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

from agentload.cli._output import print_json
from agentload.cli.trace._files import write_lines
from agentload.cli.trace._lines import counted
from agentload.errors import UsageError
from agentload.exporters import catalog
from agentload.importers.parts import texts
from agentload.importers.parts.options import checked
from agentload.tracefile import read


def run(
    *,
    format: Annotated[str | None, typer.Argument(help="The format; none lists them.")] = None,
    trace: Annotated[str | None, typer.Argument(help="A trace file, or - for stdin.")] = None,
    given: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the format.")] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
    text: Annotated[Path | None, typer.Option(help="Literal texts that `trace import --with-text` wrote beside the trace.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print lists as JSON.")] = False,
) -> None:
    if format is None or trace is None:
        _list_formats(format, json)
        return
    exporter = catalog.exporter(format)
    options = checked(exporter.name, exporter.options, _parsed(given or []))
    kept = None
    if text is not None:
        if not exporter.speaks:
            raise UsageError(f"--text: '{exporter.name}' holds no words", hint="agentload trace export FORMAT TRACE without --text")
        kept = options["texts"] = texts.Kept(texts.read(text))
    write_lines(out, exporter.lines(read(trace), **options))
    if kept is not None:
        print(
            f"words: those of {counted(len(kept.found), 'content')} are the source's, all others drawn with their lengths", file=sys.stderr
        )


def _parsed(given: list[str]) -> dict[str, str]:
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"'{text}' is no option of the form NAME=VALUE", hint="agentload trace export FORMAT")
        options[name.replace("-", "_")] = value
    return options


def _list_formats(name: str | None, json: bool) -> None:  # noqa: FBT001  # the verb's own flag
    found = [catalog.exporter(each) for each in ([name] if name else catalog.names())]
    if json:
        print_json(
            [{"name": each.name, "help": each.help, "options": {option.name: option.default for option in each.options}} for each in found]
        )
        return
    width = max(len(each.name) for each in found)
    for each in found:
        print(each.help if name else f"{each.name:<{width}}  {each.help.splitlines()[0]}")
        if name:
            print("", *(f"{option.name}={option.default}" for option in each.options), sep="\n")
