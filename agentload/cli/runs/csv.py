"""Write a run as CSV: a row a request, or a row an interval of its servers."""

import csv as commas
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._options import DB, Database, Run
from agentload.cli._print import notice
from agentload.store.database import reading
from agentload.store.listing import INTERVALS, REQUESTS, listing
from agentload.store.runs import run_named


def csv(
    database: Database = DB,
    *,
    run: Run = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="A row for each reading of a server in place of one for each request: its batch, "
            "its queue, the KV in use, tokens a second since the reading before.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; printed when omitted.")
    ] = None,
) -> None:
    """Write a run as CSV, a row for each request, or with --intervals for each reading of a server.

    Times are seconds of the run's own clock. A replay reads its servers' metrics pages
    every second, a simulation its engine every ten. A cell is empty where nothing was observed.

    For example:

        agentload runs csv agentload.duckdb -o requests.csv

        agentload runs csv agentload.duckdb --intervals
    """
    name = run_named(database, run)
    query = INTERVALS if intervals else REQUESTS
    with reading(database) as connection:
        rows = listing(connection, query, name)
        if out is None:
            commas.writer(sys.stdout, lineterminator="\n").writerows(rows)
            return
        with out.open("w", encoding="utf-8", newline="") as file:
            commas.writer(file, lineterminator="\n").writerows(rows)
    notice(f"{out}: {name}")
