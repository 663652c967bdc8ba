"""Find plug-ins by file name: every module of a package is one, in the order of its name; other packages announce rules as entry points."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """Hold a plug-in of another package, or say why it cannot be used."""

    name: str
    module: Any = None  # what the entry point names: a module as a rule
    problem: str | None = None


@cache
def modules(package: ModuleType) -> tuple[ModuleType, ...]:
    """Return the modules of *package*, sorted by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"{package.__name__}.{name}") for name in names)


@cache
def announced(group: str, *, taken: frozenset[str], needs: tuple[str, ...]) -> tuple[Announced, ...]:
    """Return what other packages announce in *group*, sorted by name; it may have no name that is taken, and defines what it needs to."""
    found: list[Announced] = []
    for entry in sorted(entry_points(group=group), key=lambda each: (each.name, each.value)):
        package = f"the package {entry.dist.name if entry.dist else '?'}"
        if entry.name in {*taken, *(each.name for each in found)}:
            found.append(Announced(name=entry.name, problem=f"another name: that of {package} is taken"))
            continue
        try:
            module = entry.load()
        except Exception as error:  # noqa: BLE001  # whatever a package does wrong, it is named, and no other rule suffers
            found.append(Announced(name=entry.name, problem=f"{package}, which cannot be loaded: {type(error).__name__}: {error}"))
            continue
        lacks = [each for each in needs if not hasattr(module, each)]
        problem = f"{' and '.join(lacks)}, which {package} does not define" if lacks else None
        found.append(Announced(name=entry.name, module=module, problem=problem))
    return tuple(found)


def first_sentence(module: ModuleType) -> str:
    """Return a plug-in's help: the first line of its docstring."""
    return (module.__doc__ or "").strip().splitlines()[0]
