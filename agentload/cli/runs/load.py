"""Load journals into a database: what a crash or a busy database left behind, or a whole database anew.

Names runs whose journals lie beside the database, journal files, or folders of them; without any, all journals beside the database.
Rows that are there already stay as they are, so loading twice does no harm.

For example:

    agentload runs load 20261120-074205-1f3a

    agentload runs load old.journal/20261120-074205-1f3a --db new.duckdb
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.errors import StoreError
from agentload.store.frames import Fault
from agentload.store.loader import load
from agentload.store.places import journalled_runs, journals


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What `--json` prints for each name."""

    name: str
    calls: int
    stamps: int
    faults: tuple[tuple[Path, Fault], ...]


def run(
    names: Annotated[list[str] | None, typer.Argument(help="Runs, journal files, or folders of journals.", metavar="RUN")] = None,
    *,
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
    json: Annotated[bool, typer.Option("--json", help="Print what was loaded as JSON.")] = False,
) -> None:
    wanted = {name: _files(name, db) for name in names or journalled_runs(db)}
    if not wanted:
        raise StoreError(f"no journals beside {db}", hint="name a journal file or folder: agentload runs load FILE --db DATABASE")
    lines = []
    for name, files in wanted.items():
        loaded = load(files, db)
        lines.append(Line(name=name, calls=loaded.calls, stamps=loaded.stamps, faults=loaded.faults))
    if json:
        print_json(lines)
        return
    for line in lines:
        print(f"{line.name}: {line.calls:,} calls, {line.stamps:,} stamps loaded")
        for fault in _faults(line):
            print(f"  {fault}")


def _files(name: str, database: Path) -> tuple[Path, ...]:
    path = Path(name)
    found = journals(database, name) or ((path,) if path.is_file() else tuple(sorted(path.rglob("*.journal"))) if path.is_dir() else ())
    if not found:
        known = ", ".join(journalled_runs(database)[-8:])
        hint = f"there are: {known}" if known else "name a journal file or folder"
        raise StoreError(f"no journals of a run '{name}' beside {database}", hint=hint)
    return found


def _faults(line: Line) -> Iterator[str]:
    for path, fault in line.faults:
        match fault.kind:
            case "torn":
                yield f"{path}: the last {fault.length:,} bytes were cut by a crash, or are being written just now"
            case "damaged":
                yield f"{path}: {fault.length:,} bytes from byte {fault.offset:,} on are damaged; what is whole around them was loaded"
