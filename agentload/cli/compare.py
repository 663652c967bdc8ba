"""Compare two runs of the same plan, to see whether last night's upgrade made the agents slower.

Both runs must have played the same trace with the same options; what differs is named, and refused. The verdict is about the later run,
held against the earlier one.

For example:

    agentload compare agentload.duckdb --runs 20261119-020000-77aa,20261120-020000-1f3a --fail-on avoid
"""

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli import _decide as opt
from agentload.errors import UsageError
from agentload.report.compare import compare
from agentload.report.formats.json import json as as_json
from agentload.report.formats.txt import text
from agentload.report.write import write


def run(
    database: Annotated[Path, typer.Argument(help="DuckDB file that holds both runs.")],
    *,
    runs: Annotated[str, typer.Option(help="BEFORE,AFTER")],
    arm: Annotated[str | None, typer.Option(help="Arm to compare; the first that both have when omitted.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the report into this folder.")] = None,
    policy: opt.Policy = None,
    profile: opt.Profile = None,
    fail_on: opt.FailOn = None,
    json: Annotated[bool, typer.Option("--json", help="Print the decision file instead.")] = False,
) -> None:
    names = [name.strip() for name in runs.split(",")]
    if len(names) != 2 or names[0] == names[1] or not all(names):
        raise UsageError(f"--runs: expected two runs, got '{runs}'", hint="--runs BEFORE,AFTER")
    words = opt.gate(fail_on)
    document = compare(database, names[0], names[1], setting=opt.setting(policy), arm=arm, profile=profile)
    print(as_json(document) if json else text(document), end="")
    if out is not None:
        write(document, out)
    opt.check(document, words)
