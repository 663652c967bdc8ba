"""Take runs from one database to another as files."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._options import DB
from agentload.cli._print import print_json
from agentload.store import archive
from agentload.store.runs import run_named


def export(
    run: Annotated[
        str | None,
        typer.Argument(help="Name of the run, or how it begins; the one stored last when omitted."),
    ] = None,
    *,
    db: Annotated[Path, "DuckDB file that has the run."] = DB,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; RUN.tar.zst when omitted.")
    ] = None,
    redact: Annotated[
        bool,
        (
            "Leave out answers and error texts; give made-up names to machines, addresses, "
            "folders and sessions."
        ),
    ] = False,
    json: Annotated[bool, "Print what was written as JSON."] = False,
) -> None:
    """Write a run to one file: its study and all its rows, so that others can report on it.

    The file holds no prompts. It holds answers to accuracy questions, unless --redact is given.

    For example:

        agentload runs export --db agentload.duckdb -o run.tar.zst

        agentload runs export 20261120-074205-1f3a --redact
    """
    name = run_named(db, run)
    target = out or Path(f"{name}.tar.zst")
    about = archive.export(db, name, target, redact=redact)
    if json:
        print_json(asdict(about) | {"file": str(target), "bytes": target.stat().st_size})
        return
    how = ", redacted" if redact else ""
    print(f"{target}: {about.rows:,} rows, {target.stat().st_size / 1e6:,.2f} MB{how}")


def import_(
    files: Annotated[list[Path], typer.Argument(help="Files that `runs export` wrote.")],
    *,
    db: Annotated[Path, "DuckDB file; it is made if it does not exist."] = DB,
    json: Annotated[bool, "Print what was loaded as JSON."] = False,
) -> None:
    """Load runs from files that `agentload runs export` wrote.

    A database takes a run once: what it has already stays as it is.

    For example:

        agentload runs import run.tar.zst --db theirs.duckdb
    """
    found = [archive.import_(file, db) for file in files]
    if json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        print(f"{each.run_id}: {each.rows:,} rows loaded into {db}")
    print(f"\nNext: agentload report {db} --run {found[-1].run_id}")
