"""Find plug-ins by file name: every module of a package is one, in the order of its name."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType


def modules(package: ModuleType) -> tuple[ModuleType, ...]:
    """Return the modules of *package*, sorted by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"{package.__name__}.{name}") for name in names)


def first_sentence(module: ModuleType) -> str:
    """Return a plug-in's help: the first line of its docstring."""
    return (module.__doc__ or "").strip().splitlines()[0]
