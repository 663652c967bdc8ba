"""Decide on a run: use, avoid, calibrate or test further, with the figures behind it.

Prints the first screen of the report and stores the decision in the database. A policy file moves the thresholds:

    min_change: 0.03
    accuracy_margin: 0.02
    slos: [{workload: chat, ttft_ms: 800}, {ttft_ms: 3000}]
    load: {peak_agents: 42, spare_replicas: 1}

For example:

    agentload advise agentload.duckdb

    agentload advise agentload.duckdb --run 20261120-074205-1f3a --policy policy.yaml --fail-on avoid,gates

    agentload advise agentload.duckdb --against prometheus=http://production:8000/metrics
"""

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli import _decide as opt
from agentload.cli._production import Against, asked
from agentload.report.advise import advise, keep
from agentload.report.formats.json import json as as_json
from agentload.report.formats.txt import text


def run(
    database: Annotated[Path, typer.Argument(help="DuckDB file that a replay, eval or simulation wrote.")],
    *,
    run: Annotated[str | None, typer.Option(help="Run to decide on, or how its name begins; the one stored last when omitted.")] = None,
    reference: Annotated[str | None, typer.Option(help="Arm in use today; the run's first when omitted.")] = None,
    policy: opt.Policy = None,
    profile: opt.Profile = None,
    against: Against = None,
    fail_on: opt.FailOn = None,
    json: Annotated[bool, typer.Option("--json", help="Print the decision file instead.")] = False,
) -> None:
    words, setting = opt.gate(fail_on), opt.setting(policy)
    document = advise(database, run, setting=setting, reference=reference, profile=profile, production=asked(against))
    print(as_json(document) if json else text(document), end="")
    keep(document, database, setting=setting)
    opt.check(document, words)
