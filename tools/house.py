"""Add up the measures of modules, by room or for all, and name what exceeds a limit."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.measure import Function, Module, is_participle, module

HOUSE: Final = Path(__file__).parents[1]
PACKAGES: Final = ("agentload", "advisor")
DENSITY: Final = 8.0
"""Syntax nodes of a line of code: programs that are known to read well have 5 to 6."""
COMPLEXITY: Final = 15
"""Ways through a function: nobody keeps more in mind, and no table of cases covers them."""
PARAMETERS: Final = 8
"""Most parameters of a function: more are a value that has no name yet."""
VERBS: Final = "agentload/cli"
"""Room in which the parameters of a function are the options of a verb."""


def room(path: Path) -> str:
    """Return the room of a module's path: a folder of its package, or the package itself."""
    return "/".join(path.parent.parts[:2])


@dataclass(frozen=True, slots=True)
class Part:
    """Some modules by their path, relative to the house."""

    modules: Mapping[Path, Module]

    def total(self, measure: str) -> int:
        """Add up one measure of the modules."""
        return sum(int(getattr(each, measure)) for each in self.modules.values())

    @property
    def density(self) -> float:
        """Syntax nodes of a line of code."""
        return self.total("nodes") / max(self.total("code"), 1)

    @property
    def branching(self) -> float:
        """Ways through the functions for each of their lines of code."""
        outer = [each for _, each in self.functions() if not each.is_inner]
        return sum(each.complexity for each in outer) / max(sum(each.code for each in outer), 1)

    @property
    def imports(self) -> float:
        """Share of the lines that are imports."""
        return self.total("imports") / max(self.total("lines"), 1)

    @property
    def longest(self) -> int:
        """Columns of the longest line."""
        return max((each.longest for each in self.modules.values()), default=0)

    @property
    def names(self) -> int:
        """Number of public classes and functions of module level."""
        return sum(len(each.classes) + len(each.functions) for each in self.modules.values())

    def functions(self) -> Iterator[tuple[Path, Function]]:
        """Yield every function with its module."""
        for path, each in self.modules.items():
            for function in each.defined:
                yield path, function

    def branching_functions(self) -> list[str]:
        """Return the functions that have too many ways through them."""
        return [
            f"{each.name} in {path}"
            for path, each in self.functions()
            if each.complexity > COMPLEXITY
        ]

    def wide_functions(self) -> list[str]:
        """Return the functions, except verbs, that have too many parameters."""
        return [
            f"{each.name} in {path}"
            for path, each in self.functions()
            if each.parameters > PARAMETERS and room(path) != VERBS
        ]

    def participles(self) -> list[str]:
        """Return the public functions of module level that are called by a bare participle."""
        return [
            f"{name} in {path}"
            for path, each in self.modules.items()
            for name in each.functions
            if is_participle(name)
        ]

    def homes(self) -> dict[str, list[str]]:
        """Return the rooms of each public class name that several rooms have."""
        found = defaultdict[str, set[str]](set)
        for path, each in self.modules.items():
            for name in each.classes:
                found[name].add(room(path))
        return {name: sorted(where) for name, where in sorted(found.items()) if len(where) > 1}

    def rooms(self) -> dict[str, "Part"]:
        """Return the modules of each room, by the room's name."""
        found = defaultdict[str, dict[Path, Module]](dict)
        for path, each in self.modules.items():
            found[room(path)][path] = each
        return {name: Part(modules) for name, modules in sorted(found.items())}


def measure(house: Path) -> Part:
    """Measure every module that is shipped."""
    paths = sorted(path for package in PACKAGES for path in (house / package).rglob("*.py"))
    return Part(
        {path.relative_to(house): module(path.read_text(encoding="utf-8")) for path in paths}
    )
