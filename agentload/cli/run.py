"""Run a study from a file: what a replay, a sweep, a search, questions or a probe is, as data.

Every verb that measures something prints its study with --print-study, all defaults written out, traces with what they hold. The file says
what is measured; where the rows go is said here. Paths in it are relative to the file.

For example:

    agentload replay rag --endpoints arms.yaml --sessions 16 --print-study > nightly.yaml

    agentload run nightly.yaml --db agentload.duckdb

    agentload run nightly.yaml --resume 20261120-074205-1f3a
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._carry import carry_out
from agentload.cli._study import DB, RUN_ID, Db, Into, Resume, place_of
from agentload.run.files import read_study


def run(
    *,
    file: Annotated[Path, typer.Argument(help="The study, in YAML or JSON.")],
    db: Db = DB,
    resume: Resume = None,
    into: Into = None,
    run_id: Annotated[str | None, RUN_ID] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    study = read_study(file)
    place = place_of({"db": db, "resume": resume, "into": into, "run_id": run_id}, folder=file.parent)
    carry_out(study, place, is_dry=dry_run, as_json=json)
