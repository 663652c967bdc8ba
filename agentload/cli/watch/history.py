"""Show what became of a job's firings: outcome, change against the reference run, alarms.

For example:

    agentload watch history nightly-rag --last 30
"""

import math
from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.cli.watch import _options as opt
from agentload.watch.alarms import Alarm
from agentload.watch.execute import watched
from agentload.watch.history import Execution
from agentload.watch.jobs_file import read_jobs
from agentload.watch.ledger import history
from agentload.watch.words import alarm_told, outcome_told


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What `--json` prints."""

    job: str
    executions: tuple[Execution, ...]
    alarms: tuple[Alarm, ...]


def run(
    name: opt.Name,
    *,
    file: opt.JobsFile = opt.DEFAULT,
    last: Annotated[int, typer.Option(help="As many of the latest executions.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print all executions and alarms as JSON.")] = False,
) -> None:
    jobs = read_jobs(file)
    job = jobs.named(name)
    past = history(jobs.database, name)
    found = watched(job, past)
    if json:
        print_json(History(job=name, executions=past, alarms=found))
        return
    if not past:
        print(f"{name} was not executed yet: agentload watch run {name}")
        return
    shown = past[-last:] if last > 0 else ()
    series = list(dict.fromkeys(change.series for each in shown for change in each.detail.changes))
    for line in table(("started (UTC)", "took", *series, "run", "outcome"), [_cells(each, series) for each in shown]):
        print(line)
    for alarm in found:
        until = "open" if alarm.closed_ns is None else f"closed {opt.when(alarm.closed_ns)}"
        print(f"{opt.when(alarm.raised_ns)}, {until}: {alarm_told(alarm)}")


def _cells(each: Execution, series: list[str]) -> tuple[str, ...]:
    found = {change.series: f"{math.expm1(change.log_ratio):+.1%}" for change in each.detail.changes}
    return (
        opt.when(each.started_ns),
        opt.seconds(each),
        *(found.get(name, "–") for name in series),
        each.run_id or "–",
        outcome_told(each),
    )
