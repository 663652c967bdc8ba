"""Decide on what was measured, and write it down."""

import shlex
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentload.cli._named import check, gate, setting
from agentload.cli._options import (
    DB,
    Against,
    Database,
    FailOn,
    Out,
    Policy,
    Profile,
    Reference,
    Run,
)
from agentload.cli._print import Style, paint_words, print_json
from agentload.cli._production import production
from agentload.errors import UsageError
from agentload.model.rows import RunRow
from agentload.report.render import USUAL, formats, render, write
from agentload.store import tables

if TYPE_CHECKING:
    from agentload.report.parts import Document


def advise(
    database: Database = DB,
    *,
    run: Run = None,
    reference: Reference = None,
    policy: Policy = None,
    profile: Profile = None,
    against: Against = None,
    fail_on: FailOn = None,
    json: Annotated[bool, "Print the decision file instead."] = False,
) -> None:
    """Decide on a run: use, avoid, calibrate or test further, with the figures behind it.

    Prints the first screen of the report and stores the decision
    in the database. A policy file moves the thresholds:

        min_change: 0.03
        accuracy_margin: 0.02
        slos: [{workload: chat, ttft_ms: 800}, {ttft_ms: 3000}]
        load: {peak_agents: 42, spare_replicas: 1}

    For example:

        agentload advise agentload.duckdb

        agentload advise agentload.duckdb --run 20261120-074205-1f3a --policy policy.yaml \
            --fail-on avoid,gates

        agentload advise agentload.duckdb --against prometheus=http://production:8000/metrics
    """
    from agentload.report.advise import advise as advised  # late: help decides nothing
    from agentload.report.advise import keep

    words, thresholds = gate(fail_on), setting(policy)
    found = None if against is None else production(against)
    document = advised(
        database, run, setting=thresholds, reference=reference, profile=profile, production=found
    )
    print(render(document, "json") if json else _first_screen(document), end="")
    keep(document, database, setting=thresholds)
    check(document, words)


def _first_screen(document: "Document") -> str:
    """Return the first screen, on a terminal with its decision and how sure it is in colour."""
    tones: dict[str, Style] = {"good": "good", "bad": "bad"}
    sure: dict[str, Style] = {
        "Effect: open": "doubtful",
        "Effect: likely": "doubtful",
        "Effect: certain": "good",
    }
    return paint_words(
        render(document, "txt"),
        {document.statement: tones.get(document.tone, "strong"), **sure, "Do this next:": "strong"},
    )


def report(
    database: Database = DB,
    *,
    run: Run = None,
    out: Out = None,
    format: Annotated[
        str, f"Any of {','.join(formats())}; data is charts as CSV and Vega-Lite."
    ] = ",".join(USUAL),
    reference: Reference = None,
    policy: Policy = None,
    profile: Profile = None,
    against: Against = None,
    fail_on: FailOn = None,
    json: Annotated[bool, "Print the headline and the files as JSON."] = False,
) -> None:
    """Write the decision report of a run: Markdown with its charts, one HTML page, and JSON.

    A decision to use an arm comes with a canary manifest, its alert
    rules and the rollback limits. docs/report.md explains every row.

    For example:

        agentload report agentload.duckdb -o reports/today

        agentload report agentload.duckdb --run 20261120-074205-1f3a --format html -o reports/today

        agentload report agentload.duckdb --against prometheus=http://production:8000/metrics
    """
    from agentload.report.advise import advise as advised  # late: as in `advise`

    words = gate(fail_on)
    found = None if against is None else production(against)
    document = advised(
        database,
        run,
        setting=setting(policy),
        reference=reference,
        profile=profile,
        production=found,
    )
    folder = out or Path("reports") / document.run
    paths = write(document, folder, formats=[name.strip() for name in format.split(",")])
    if json:
        print_json(
            {
                "run": document.run,
                "headline": document.headline,
                "files": [str(path) for path in paths],
            }
        )
    else:
        print(document.headline)
        for path in paths:
            if path.parent == folder:
                print(path)
    check(document, words)


def compare(
    database: Database = DB,
    *,
    runs: Annotated[str | None, "BEFORE,AFTER; must be given."] = None,
    arm: Annotated[str | None, "Arm to compare; the first that both have when omitted."] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the report into this folder.")
    ] = None,
    policy: Policy = None,
    profile: Profile = None,
    fail_on: FailOn = None,
    json: Annotated[bool, "Print the decision file instead."] = False,
) -> None:
    """Compare two runs of the same plan, to see whether
    last night's upgrade made the agents slower.

    Both runs must have played the same trace with the same options; what differs is
    named, and refused. The verdict is about the later run, compared with the earlier one.

    For example:

        agentload compare agentload.duckdb --runs 20261119-020000-77aa,20261120-020000-1f3a \
            --fail-on avoid
    """
    from agentload.report.advise import compare as compared  # late: as in `advise`

    before, after = _two_runs(database, runs)
    words = gate(fail_on)
    document = compared(database, before, after, setting=setting(policy), arm=arm, profile=profile)
    print(render(document, "json") if json else _first_screen(document), end="")
    if out is not None:
        write(document, out)
    check(document, words)


def _two_runs(database: Path, typed: str | None) -> tuple[str, str]:
    """Return the earlier and the later run; raise `UsageError` naming two that are stored."""
    names = [] if typed is None else [name.strip() for name in typed.split(",")]
    if len(names) == 2 and names[0] != names[1] and all(names):
        return names[0], names[1]
    from agentload.store.database import reading  # late: two runs are hardly ever named wrong
    from agentload.store.runs import lines

    wrong = f"expected two runs, got {repr(typed) if typed else 'none'}"
    with reading(database) as connection:
        played = {each.run_id: each.trace_hash for each in tables.rows(connection, RunRow)}
        stored = [each.run_id for each in lines(connection)]
    of_one_trace = [pair for pair in combinations(stored, 2) if len({*map(played.get, pair)}) == 1]
    if not of_one_trace:
        raise UsageError(
            f"--runs: {wrong}; {database} has no two runs of one trace",
            hint=f"agentload runs list {shlex.quote(str(database))}",
        )
    earlier, later = of_one_trace[-1]
    raise UsageError(
        f"--runs: {wrong}",
        hint=f"agentload compare {shlex.quote(str(database))} --runs {earlier},{later}",
    )
