"""Count what the product is made of: `python -m
tests.house.size [--check | --ledger]` (`make size`).

Each room of the shipped Python with its lines, modules, nodes and statements of the syntax
tree, and the share of import lines; then the shipped files that are not Python, and what of
the repository does not ship. `--ledger` writes the lines of each room into the ledger of
docs/architecture.md; `--check` exits with 1 where a limit is passed or the ledger is another.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

HOUSE: Final = Path(__file__).parents[2]
PACKAGES: Final = ("agentload", "advisor")
SHIPPED: Final = (*PACKAGES, "profiles", "presets")
SUFFIXES: Final = ("sql", "j2", "js", "css", "yaml")
LEDGER: Final = Path("docs/architecture.md")
ROW: Final = re.compile(r"^\| `((?:agentload|advisor)(?:/\w+)?)` \| ([\d,]+) \|", re.MULTILINE)
LIMITS: Final = {"lines": 53_000, "nodes": 410_000, "modules": 540, "imports": 0.08}
"""What the shipped Python is to come down to: what its parts do now, said once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large some source is; `imports` are the lines that import statements take."""

    lines: int = 0
    modules: int = 0
    nodes: int = 0
    statements: int = 0
    imports: int = 0

    def __add__(self, other: "Size") -> "Size":
        lines, modules, nodes, statements, imports = (
            mine + yours for mine, yours in zip(astuple(self), astuple(other), strict=True)
        )
        return Size(
            lines=lines, modules=modules, nodes=nodes, statements=statements, imports=imports
        )

    @property
    def share(self) -> float:
        """Share of the lines that are imports."""
        return self.imports / self.lines if self.lines else 0.0


def size(source: str) -> Size:
    """Measure one module."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return Size(
        lines=len(source.splitlines()),
        modules=1,
        nodes=len(nodes),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        imports=sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
    )


def room(path: Path) -> str:
    """Return the room of a module, relative to the house:
    a folder of its package, or the package itself.
    """
    return "/".join(path.parent.parts[:2])


def rooms(house: Path) -> dict[str, Size]:
    """Measure each room."""
    found: dict[str, Size] = {}
    for path in sorted(path for package in PACKAGES for path in (house / package).rglob("*.py")):
        name = room(path.relative_to(house))
        found[name] = found.get(name, Size()) + size(path.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


def lines(house: Path, folders: Sequence[str], suffixes: Sequence[str]) -> Counter[str]:
    """Count the lines of the folders' files by suffix."""
    found = Counter[str](dict.fromkeys(suffixes, 0))
    for path in (
        path
        for folder in folders
        for suffix in suffixes
        for path in (house / folder).rglob(f"*.{suffix}")
    ):
        found[path.suffix[1:]] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def ledger(page: str) -> dict[str, int]:
    """Read the lines of each room from the ledger."""
    return {name: int(count.replace(",", "")) for name, count in ROW.findall(page)}


def rewritten(page: str, sizes: dict[str, Size]) -> str:
    """Return the page with the lines of each room that still exists as they are now."""
    return ROW.sub(
        lambda row: f"| `{row[1]}` | {sizes[row[1]].lines:,} |" if row[1] in sizes else row[0], page
    )


def main(
    arguments: Sequence[str] | None = None,
    write: Callable[[str], object] = sys.stdout.write,
    house: Path = HOUSE,
) -> int:
    """Print the sizes, the limits and where the ledger differs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 where a limit is passed or the ledger is another",
    )
    parser.add_argument(
        "--ledger", action="store_true", help=f"write the lines of each room into {LEDGER}"
    )
    options = parser.parse_args(arguments)
    sizes = rooms(house)
    total = sum(sizes.values(), Size())
    page = (house / LEDGER).read_text(encoding="utf-8")
    if options.ledger:
        page = rewritten(page, sizes)
        (house / LEDGER).write_text(page, encoding="utf-8")
    write(f"{'room':24}{'lines':>8}{'modules':>9}{'nodes':>9}{'statements':>12}{'imports':>9}\n")
    for name, each in [*sizes.items(), ("total", total)]:
        write(
            f"{name:24}{each.lines:8,}{each.modules:9,}{each.nodes:9,}{each.statements:12,}{each.share:9.1%}\n"
        )
    write(
        "\nother lines: "
        + ", ".join(
            f"{suffix} {count:,}" for suffix, count in lines(house, SHIPPED, SUFFIXES).items()
        )
    )
    write(
        "; not shipped: "
        + ", ".join(
            f"{each} {lines(house, [each], ['py'])['py']:,}" for each in ("tests", "benchmarks")
        )
        + "\n\n"
    )
    figures = {
        "lines": total.lines,
        "nodes": total.nodes,
        "modules": total.modules,
        "imports": total.share,
    }
    for name, limit in LIMITS.items():
        value = figures[name]
        pair = f"{value:7.1%} of {limit:7.1%}" if name == "imports" else f"{value:7,} of {limit:7,}"
        write(f"{name:8}{pair}  {'met' if value <= limit else 'not met'}\n")
    written = ledger(page)
    differing = [
        name for name in {**written, **sizes} if written.get(name) != sizes.get(name, Size()).lines
    ]
    for name in differing:
        write(
            f"ledger: {name} has {sizes.get(name, Size()).lines:,} lines, not "
            f"{written.get(name, 0):,}\n"
        )
    is_kept = not differing and all(figures[each] <= limit for each, limit in LIMITS.items())
    return 1 if options.check and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
