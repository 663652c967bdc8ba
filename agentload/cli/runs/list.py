"""List the runs of a database, in the order in which they were stored.

For example:

    agentload runs list --db agentload.duckdb
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.store.database import reading
from agentload.store.places import journalled_runs
from agentload.store.runs import RunLine, lines


def run(
    *,
    db: Annotated[Path, typer.Option(help="DuckDB file to read.")] = Path("agentload.duckdb"),
    json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    with reading(db) as connection:
        runs = lines(connection)
    if json:
        print_json(runs)
        return
    head = ("run", "kind", "started (UTC)", "name", "arms", "blocks", "void", "calls", "ok", "status")
    for line in table(head, [_cells(each) for each in runs]):
        print(line)
    for name in sorted(set(journalled_runs(db)) - {each.run_id for each in runs}):
        print(f"not loaded yet: {name} (agentload runs load {name} --db {db})", file=sys.stderr)


def _cells(run: RunLine) -> tuple[str, ...]:
    started = "–" if run.created_ns is None else f"{datetime.fromtimestamp(run.created_ns / 1e9, UTC):%Y-%m-%d %H:%M}"
    ok = f"{run.ok / run.calls:.1%}" if run.calls else "–"
    return (
        run.run_id,
        run.kind,
        started,
        run.name,
        ",".join(run.arms),
        str(run.blocks),
        str(run.void_blocks),
        f"{run.calls:,}",
        ok,
        run.status,
    )
