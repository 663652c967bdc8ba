"""Print which share of each room the tests execute: `python -m tools.covered`.

Run the tests with `--cov` first (`make coverage`). Processes that the tests start are
counted too, except killed ones, which write nothing.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.house import room


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Numbers of statements and branches, and of those that were executed or taken."""

    statements: int = 0
    executed: int = 0
    branches: int = 0
    taken: int = 0

    def __add__(self, other: "Covered") -> "Covered":
        return Covered(
            statements=self.statements + other.statements,
            executed=self.executed + other.executed,
            branches=self.branches + other.branches,
            taken=self.taken + other.taken,
        )


def rooms(report: Mapping[str, Any]) -> dict[str, Covered]:
    """Add up coverage's JSON report by room."""
    found: dict[str, Covered] = {}
    for path, file in report["files"].items():
        name, summary = room(Path(path)), file["summary"]
        found[name] = found.get(name, Covered()) + Covered(
            statements=summary["num_statements"],
            executed=summary["covered_lines"],
            branches=summary["num_branches"],
            taken=summary["covered_branches"],
        )
    return dict(sorted(found.items()))


def table(found: Mapping[str, Covered]) -> str:
    """Return a line for each room and one for all of them."""
    lines = [f"{'room':24}{'statements':>12}{'executed':>10}{'branches':>10}{'taken':>8}"]
    for name, each in [*found.items(), ("total", sum(found.values(), Covered()))]:
        shares = (
            f"{part / whole:.1%}" if whole else ""
            for part, whole in ((each.executed, each.statements), (each.taken, each.branches))
        )
        lines.append(
            f"{name:24}{each.statements:12,}{next(shares):>10}{each.branches:10,}{next(shares):>8}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    said = subprocess.run(
        [sys.executable, "-m", "coverage", "json", "--quiet", "-o", "-"],
        check=True,
        capture_output=True,
    )
    sys.stdout.write(table(rooms(json.loads(said.stdout))))
