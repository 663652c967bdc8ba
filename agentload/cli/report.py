"""Write the decision report of a run: Markdown with its charts, one HTML page, and JSON.

Beside a decision to use an arm lie a canary manifest, its alert rules and the rollback limits. docs/report.md explains every row.

For example:

    agentload report agentload.duckdb -o reports/today

    agentload report agentload.duckdb --run 20261120-074205-1f3a --format html -o reports/today

    agentload report agentload.duckdb --against prometheus=http://production:8000/metrics
"""

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli import _decide as opt
from agentload.cli._production import Against, asked
from agentload.report.advise import advise
from agentload.report.write import USUAL, write


def run(
    database: Annotated[Path, typer.Argument(help="DuckDB file that a replay, eval or simulation wrote.")],
    *,
    run: Annotated[str | None, typer.Option(help="Run to report on, or how its name begins; the one stored last when omitted.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write into; reports/RUN when omitted.")] = None,
    format: Annotated[str, typer.Option(help="Any of md,html,json,txt.")] = ",".join(USUAL),
    reference: Annotated[str | None, typer.Option(help="Arm in use today; the run's first when omitted.")] = None,
    policy: opt.Policy = None,
    profile: opt.Profile = None,
    against: Against = None,
) -> None:
    document = advise(
        database,
        run,
        setting=opt.setting(policy),
        reference=reference,
        profile=profile,
        production=asked(against),
    )
    folder = out or Path("reports") / document.run
    paths = write(document, folder, formats=[name.strip() for name in format.split(",")])
    print(document.headline)
    for path in paths:
        if path.parent == folder:
            print(path)
