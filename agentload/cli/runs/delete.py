"""Delete runs: their rows in the database and the journals beside it.

Asks first, unless --yes is given. With --keep-journals, `agentload runs load RUN` can bring a run back.

For example:

    agentload runs delete 20261120-074205-1f3a
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.errors import AgentloadError, UsageError
from agentload.store.database import reading, writing
from agentload.store.places import journal_folder, journals
from agentload.store.runs import delete, named


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What `--json` prints for each run."""

    run_id: str
    calls: int
    journals: int


def run(
    names: Annotated[list[str], typer.Argument(help="Names of runs, or how they begin.", metavar="RUN")],
    *,
    db: Annotated[Path, typer.Option(help="DuckDB file to delete from.")] = Path("agentload.duckdb"),
    keep_journals: Annotated[bool, typer.Option("--keep-journals", help="Delete rows only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was deleted as JSON.")] = False,
) -> None:
    with reading(db) as connection:
        runs = {each.run_id: each for each in (named(connection, name) for name in names)}
    if not yes:
        _ask(", ".join(f"{each.run_id} ({each.calls:,} calls)" for each in runs.values()))
    deleted = []
    for line in runs.values():
        with writing(db) as connection:
            delete(connection, line.run_id)
        files = () if keep_journals else journals(db, line.run_id)
        if files:
            shutil.rmtree(journal_folder(db, line.run_id))
        deleted.append(Deleted(run_id=line.run_id, calls=line.calls, journals=len(files)))
    if json:
        print_json(deleted)
        return
    for each in deleted:
        print(f"deleted {each.run_id}: {each.calls:,} calls, {each.journals} journal{'' if each.journals == 1 else 's'}")


def _ask(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask whether to delete", hint="--yes deletes without asking")
    if not typer.confirm(f"delete {what}?", err=True):
        raise AgentloadError("nothing was deleted")
