"""What verbs of traces are given by name: a trace, a plug-in, its options."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Protocol, TypeAlias

import typer

from agentload.builtin import find
from agentload.cli._print import notice, print_json
from agentload.errors import UsageError
from agentload.model.trace import Session, Trace
from agentload.plugins import Option, summary
from agentload.report.format import plural
from agentload.tracefile import read, write
from agentload.tracefile.files import STDIN

Named: TypeAlias = Annotated[
    str, typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin.")
]
Out: TypeAlias = Annotated[
    str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")
]


def open_trace(trace: str, *, lenient: bool = False) -> Trace:
    """Open a file, a shipped trace by its name, or standard input."""
    return read(trace if trace == STDIN else find("traces", trace), lenient=lenient)


def write_trace(out: str, trace: Trace) -> None:
    """Write a trace, and say on stderr what is in the file."""
    count = {"session": 0, "call": 0}

    def counting() -> Iterator[Session]:
        for session in trace.sessions:
            count["session"] += 1
            count["call"] += len(session.turns)
            yield session

    write(out, Trace(header=trace.header, sessions=counting()))
    if out != STDIN:
        notice(f"{out}: {', '.join(plural(number, what) for what, number in count.items())}")


class _Plugin(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def options(self) -> Sequence[Option]: ...


def options_by_name(given: Iterable[str], *, hint: str) -> dict[str, str]:
    """Return options by their names; the hint is the command that lists what there is."""
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"'{text}' is no option of the form NAME=VALUE", hint=hint)
        options[name.replace("-", "_")] = value
    return options


def list_all(plugins: Sequence[_Plugin], *, json: bool) -> None:
    """List plug-ins by name and the first paragraph of their help."""
    if json:
        print_json([_data(each) for each in plugins])
        return
    width = max(len(each.name) for each in plugins)
    for each in plugins:
        print(f"{each.name:<{width}}  {summary(each.help)}")


def describe(plugin: _Plugin, *, json: bool) -> None:
    """Print what one is for, its options and their defaults."""
    if json:
        print_json(_data(plugin))
        return
    print(plugin.help, end="\n\n")
    width = max((len(option.name) for option in plugin.options), default=0)
    for option in plugin.options:
        print(f"{option.name:<{width}}  {option.default}")


def _data(plugin: _Plugin) -> dict[str, object]:
    return {
        "name": plugin.name,
        "help": plugin.help,
        "options": {option.name: option.default for option in plugin.options},
    }
