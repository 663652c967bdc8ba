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
        (
            "A row for each reading of a server in place of one for each request: its batch, "
            "its queue, the KV in use, tokens a second since the reading before."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; printed when omitted.")
    ] = None,
) -> None:
    """Write a run as CSV, a row for each request, or with --intervals for each reading of a server.

    Times are seconds of the run's own clock. A replay reads its servers' metrics pages
    every second, a simulation its engine every ten. A cell is empty where nothing was observed.

    A request's columns: arm, pair, workload, session, turn, attempt and status say which one and
    how it ended, prime that it filled a cache beforehand. due_s is when it was due, held_ms how
    long the client kept it after that. ttft_ms, tpot_ms and turn_ms are what it took. Of its
    tokens, prompt_tokens and cached_tokens are as the server counts them, output_tokens were
    answered, asked_tokens wanted. http_status and error are what a failure said.

    An interval's columns: arm and at_s say whose reading and when, seconds how long after the one
    before. running and waiting are requests, kv_usage is a share of the pool.
    prompt_tokens_per_s, output_tokens_per_s, cached_tokens_per_s and preemptions are of the
    interval.

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
