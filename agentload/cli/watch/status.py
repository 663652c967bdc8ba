"""Show each job: its latest execution, its open alarms, its next firing.

Exits with 3 while an alarm is open, other than an improvement.

For example:

    agentload watch status
"""

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.cli.watch import _options as opt
from agentload.errors import GateError
from agentload.watch.alarms import AMISS, Alarm
from agentload.watch.execute import watched
from agentload.watch.history import Execution, executions
from agentload.watch.job import Job
from agentload.watch.jobs_file import Jobs, read_jobs
from agentload.watch.ledger import history, locked
from agentload.watch.notices import alarm_told
from agentload.watch.schedule import firings


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What `--json` prints for each job."""

    job: str
    is_running: bool
    latest: Execution | None
    alarms: tuple[Alarm, ...]
    """Open ones."""
    next_ns: int
    executions: int


def run(
    *,
    file: opt.JobsFile = opt.DEFAULT,
    json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    jobs = read_jobs(file)
    found = [_status(job, jobs) for job in jobs.jobs]
    if json:
        print_json(found)
    else:
        _show(found)
    amiss = [each.job for each in found for alarm in each.alarms if alarm.kind in AMISS]
    if amiss:
        raise GateError(f"open alarms: {len(amiss)}", hint=f"agentload watch history {amiss[0]} --file {file}")


def _status(job: Job, jobs: Jobs) -> Status:
    past = history(jobs.database, job.name)
    ran = executions(past)
    with locked(jobs.database, job.name) as is_free:
        pass
    return Status(
        job=job.name,
        is_running=not is_free,
        latest=ran[-1] if ran else None,
        alarms=tuple(alarm for alarm in watched(job, past) if alarm.is_open),
        next_ns=next(firings(job.schedule, time.time_ns())),
        executions=len(ran),
    )


def _show(found: list[Status]) -> None:
    head = ("job", "executions", "latest (UTC)", "outcome", "alarms", "next (UTC)")
    for line in table(head, [_cells(each) for each in found]):
        print(line)
    for each in found:
        for alarm in each.alarms:
            print(f"{each.job}: {alarm_told(alarm)}")


def _cells(each: Status) -> tuple[str, ...]:
    latest = each.latest
    state = "running" if each.is_running else "–" if latest is None else "killed" if latest.outcome == "running" else latest.outcome
    started = "–" if latest is None else opt.when(latest.started_ns)
    return (each.job, str(each.executions), started, state, str(len(each.alarms)), opt.when(each.next_ns))
