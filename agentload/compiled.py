"""Load compiled modules in place of their sources, if `agentload-speedups` is installed.

The sources are the product, and all of it. `speedups/` compiles the pure rooms that every call
and every simulated step pass through, under their own names and into a folder of its own;
whoever imports one of them gets the compiled one. Compiled modules call each other without
asking the interpreter, so it is all of them or none: none where `AGENTLOAD_PURE=1` says so, or
where they were made of other sources than those that are here, or for another Python.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).parent.parent
PURE: Final = "AGENTLOAD_PURE"
OTHER_SOURCES: Final = "none: agentload-speedups was made of other sources"
NOT_INSTALLED: Final = "none: agentload-speedups is not installed"
OTHER_PYTHON: Final = "none: agentload-speedups was made for another Python"


def digest(house: Path, modules: Iterable[str]) -> str:
    """Return a hash of the sources of some modules."""
    import hashlib

    found = hashlib.blake2b(digest_size=16)
    for name in modules:
        found.update(name.encode() + b"\0" + (house / f"{name.replace('.', '/')}.py").read_bytes())
    return found.hexdigest()


class Finder:
    """Find the compiled modules; leave every other module to the next finder."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._places = places

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> ModuleSpec | None:
        """Return where a compiled module is loaded from; None for any other module."""
        place = self._places.get(name)
        if place is None:
            return None
        return spec_from_file_location(name, place, loader=ExtensionFileLoader(name, str(place)))


def prefer() -> str:
    """Load compiled modules from now on, if possible; return how many, or why none.

    `agentload doctor` prints the result.
    """
    if os.environ.get(PURE) == "1":
        return f"none: {PURE}=1"
    if find_spec("agentload_speedups") is None:
        return NOT_INSTALLED
    import agentload_speedups as built

    try:
        is_current = digest(HOUSE, built.MODULES) == built.DIGEST
    except OSError:
        is_current = False
    if not is_current:
        return OTHER_SOURCES
    folder = Path(built.__file__).parent
    places = {
        name: folder / f"{name.replace('.', '/')}{EXTENSION_SUFFIXES[0]}" for name in built.MODULES
    }
    if not all(place.is_file() for place in places.values()):
        return OTHER_PYTHON
    sys.meta_path.insert(0, Finder(places))
    return f"{len(places)} modules"
