"""Find the modules of a package: rules and gates are files that are known by their names."""

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def modules(package: ModuleType) -> tuple[ModuleType, ...]:
    """Return the modules of *package*, sorted by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"{package.__name__}.{name}") for name in names)
