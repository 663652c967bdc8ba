"""Find exporters by file name, and read their options from their signatures."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from agentload.errors import UsageError
from agentload.importers.parts.options import Option, nearest, options

_NO_FORMATS: Final = frozenset({"catalog"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A format, its options and what it says of itself."""

    name: str
    help: str
    options: tuple[Option, ...]
    lines: Callable[..., Iterator[bytes]]
    speaks: bool
    """Whether it writes words, and can write those that were kept beside the trace."""


def names() -> tuple[str, ...]:
    """List the formats, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(_shown(module.name) for module in modules if not module.ispkg and module.name not in _NO_FORMATS))


def exporter(name: str) -> Exporter:
    """Return the exporter of that name; raise `UsageError` naming the nearest if there is none."""
    if _shown(name) not in names():
        raise UsageError(f"no format '{name}'", hint=nearest(name, names()))
    module = import_module(f"agentload.exporters.{name.replace('-', '_')}")
    found = options(module.lines)
    return Exporter(
        name=_shown(name),
        help=inspect.cleandoc(module.__doc__ or ""),
        options=tuple(option for option in found if option.name != "texts"),
        lines=module.lines,
        speaks=any(option.name == "texts" for option in found),
    )


def _shown(name: str) -> str:
    return name.replace("_", "-")
