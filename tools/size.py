"""Count what a reader of the product meets: `python -m tools.size` (`make size ARGS=--check`).

Each room of the shipped Python with its syntax nodes, names, ways through functions and lines; then
the totals next to their limits.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools import lists
from tools.house import COMPLEXITY, DENSITY, HOUSE, PACKAGES, PARAMETERS, Part, measure
from tools.measure import COLUMNS

SHIPPED: Final = (*PACKAGES, "profiles", "presets")
SUFFIXES: Final = ("sql", "j2", "js", "css", "yaml")
LEDGER: Final = Path("docs/architecture.md")
ROW: Final = re.compile(r"^\| `((?:agentload|advisor)(?:/\w+)?)` \| ([\d,]+) \|", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Most that the whole product may have of one measure."""

    name: str
    most: float
    of: Callable[[Part], float]
    form: str = ",d"

    def line(self, whole: Part) -> str:
        """Return the line that says whether the limit is met."""
        value = self.of(whole)
        verdict = "met" if value <= self.most else "not met"
        return f"{self.name:40}{value:>9{self.form}} of {self.most:>9{self.form}}  {verdict}"


LIMITS: Final = (
    # What the product does, said once: a reader pays
    # for each node, however it is broken into lines.
    Limit(name="syntax nodes", most=505_000, of=lambda whole: whole.total("nodes")),
    # Programs that are known to read well have 5 to 6.
    Limit(name="nodes per line of code", most=DENSITY, of=lambda whole: whole.density, form=".2f"),
    # Programs that are known to read well have 0.2 to 0.25.
    Limit(
        name="ways through functions per line",
        most=0.33,
        of=lambda whole: whole.branching,
        form=".3f",
    ),
    Limit(
        name=f"functions with over {COMPLEXITY} ways through",
        most=0,
        of=lambda whole: len(whole.branching_functions()),
    ),
    Limit(
        name=f"functions with over {PARAMETERS} parameters",
        most=0,
        of=lambda whole: len(whole.wide_functions()),
    ),
    # A name that two rooms use is looked up twice; plug-ins of two kinds may share some.
    Limit(name="class names with several homes", most=20, of=lambda whole: len(whole.homes())),
    # A function is a noun of the field or a verb that acts.
    Limit(name="bare participles", most=0, of=lambda whole: len(whole.participles())),
    # Two files then fit side by side on a screen; the
    # formatter breaks code, and leaves texts to us.
    Limit(name="longest line", most=COLUMNS, of=lambda whole: whole.longest),
    # A larger share shows files that are mere paragraphs of their importers.
    Limit(name="share of imports", most=0.08, of=lambda whole: whole.imports, form=".1%"),
)


def table(parts: Mapping[str, Part]) -> str:
    """Return a line for each part."""
    head = (
        f"{'nodes':>9}{'a line':>8}{'ways':>7}{'names':>7}{'imports':>9}{'lines':>8}{'modules':>9}"
    )
    rows = [
        f"{name:24}{each.total('nodes'):9,}{each.density:8.2f}{each.branching:7.3f}{each.names:7,}"
        f"{each.imports:9.1%}{each.total('lines'):8,}{len(each.modules):9,}"
        for name, each in parts.items()
    ]
    return "\n".join([f"{'room':24}{head}", *rows])


def other_lines(house: Path, folders: Sequence[str], suffixes: Sequence[str]) -> Counter[str]:
    """Count the lines of the folders' files by suffix."""
    found = Counter[str](dict.fromkeys(suffixes, 0))
    for folder in folders:
        for path in (house / folder).rglob("*.*"):
            if path.suffix[1:] in found:
                found[path.suffix[1:]] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def rest(whole: Part, house: Path) -> str:
    """Return the figures that have no limit."""
    shipped = other_lines(house, SHIPPED, SUFFIXES)
    ours = {
        folder: other_lines(house, [folder], ["py"])["py"]
        for folder in ("tests", "tools", "benchmarks")
    }
    said = [
        ", ".join(f"{name} {count:,}" for name, count in counts.items())
        for counts in (shipped, ours)
    ]
    return (
        f"{whole.total('too_long'):,} lines are longer than {COLUMNS} columns\n"
        f"other lines: {said[0]}; not shipped: {said[1]}"
    )


def ledger(page: str) -> dict[str, int]:
    """Read the nodes of each room from the ledger."""
    return {name: int(count.replace(",", "")) for name, count in ROW.findall(page)}


def rewrite(page: str, nodes: Mapping[str, int]) -> str:
    """Return the page with the nodes of each room that still exists as they are now."""
    return ROW.sub(
        lambda row: f"| `{row[1]}` | {nodes[row[1]]:,} |" if row[1] in nodes else row[0], page
    )


def names(whole: Part) -> str:
    """Return the class names with several homes, and the participles."""
    homes = [f"{name}: {', '.join(rooms)}" for name, rooms in whole.homes().items()]
    return "\n".join([*homes, *whole.participles()])


def complexities(whole: Part) -> str:
    """Return the functions beyond a limit, the most complex first."""
    beyond = {*whole.branching_functions(), *whole.wide_functions()}
    found = sorted(
        (
            (each.complexity, each.parameters, f"{each.name} in {path}")
            for path, each in whole.functions()
        ),
        reverse=True,
    )
    return "\n".join(
        f"{complexity:4} ways, {parameters:2} parameters: {name}"
        for complexity, parameters, name in found
        if name in beyond
    )


def main(
    arguments: Sequence[str] | None = None,
    write: Callable[[str], object] = sys.stdout.write,
    house: Path = HOUSE,
) -> int:
    """Print what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 where a limit is passed or the ledger is another",
    )
    asked.add_argument(
        "--ledger", action="store_true", help=f"write the nodes of each room into {LEDGER}"
    )
    asked.add_argument(
        "--lists", action="store_true", help=f"write what passes a limit today into {lists.FOLDER}"
    )
    asked.add_argument(
        "--names", action="store_true", help="print class names with several homes, and participles"
    )
    asked.add_argument("--complex", action="store_true", help="print the functions beyond a limit")
    options = parser.parse_args(arguments)
    whole = measure(house)
    if options.names or options.complex:
        write((names if options.names else complexities)(whole) + "\n")
        return 0
    if options.lists:
        for name, each in lists.lists(whole).items():
            lists.write(house, name, each)
        return 0
    parts = whole.rooms()
    nodes = {name: each.total("nodes") for name, each in parts.items()}
    page = (house / LEDGER).read_text(encoding="utf-8")
    if options.ledger:
        page = rewrite(page, nodes)
        (house / LEDGER).write_text(page, encoding="utf-8")
    write(f"{table({**parts, 'total': whole})}\n\n{rest(whole, house)}\n\n")
    write("\n".join(each.line(whole) for each in LIMITS) + "\n")
    written = ledger(page)
    differing = [name for name in {**written, **nodes} if written.get(name) != nodes.get(name)]
    for name in differing:
        write(f"ledger: {name} has {nodes.get(name, 0):,} nodes, not {written.get(name, 0):,}\n")
    is_kept = not differing and all(each.of(whole) <= each.most for each in LIMITS)
    return 1 if options.check and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
