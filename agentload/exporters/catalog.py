"""Find exporters."""

from collections.abc import Callable, Iterator
from typing import Final

from agentload.model.record import Record
from agentload.plugins import Broken, Option, Plugins, help_of, options

PLUGINS: Final = Plugins(room="agentload.exporters", kind="format", needs=("lines",), joint="-")
names: Final = PLUGINS.names


class Exporter(Record):
    """A format, its options and its help."""

    name: str
    help: str
    options: tuple[Option, ...]
    lines: Callable[..., Iterator[bytes]]
    speaks: bool
    """Whether it writes words, and can use those kept with the trace."""


def every() -> tuple[Exporter | Broken, ...]:
    """Return all exporters, sorted by name."""
    return tuple(PLUGINS.every(exporter))


def exporter(name: str) -> Exporter:
    """Return the exporter of that name; raise `UsageError` naming the nearest if there is none."""
    found = PLUGINS.load(name)
    known = options(found.lines)
    return Exporter(
        name=PLUGINS.shown(name),
        help=help_of(found),
        options=tuple(option for option in known if option.name != "texts"),
        lines=found.lines,
        speaks=any(option.name == "texts" for option in known),
    )
