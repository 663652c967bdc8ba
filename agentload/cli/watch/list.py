"""List the jobs of a file with their schedules.

For example:

    agentload watch list
"""

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.cli.watch import _options as opt
from agentload.watch.jobs_file import read_jobs
from agentload.watch.schedule import firings


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What `--json` prints for each job."""

    job: str
    cron: str
    time_zone: str
    next_ns: int
    traces: tuple[str, ...]
    endpoints: str


def run(
    *,
    file: opt.JobsFile = opt.DEFAULT,
    json: Annotated[bool, typer.Option("--json", help="Print the jobs as JSON.")] = False,
) -> None:
    now_ns = time.time_ns()
    lines = [
        Line(
            job=each.name,
            cron=each.schedule.cron,
            time_zone=each.schedule.time_zone,
            next_ns=next(firings(each.schedule, now_ns)),
            traces=each.traces,
            endpoints=each.endpoints,
        )
        for each in read_jobs(file).jobs
    ]
    if json:
        print_json(lines)
        return
    head = ("job", "schedule", "time zone", "next (UTC)", "traces", "endpoints")
    for line in table(head, [(e.job, e.cron, e.time_zone, opt.when(e.next_ns), ",".join(e.traces), e.endpoints) for e in lines]):
        print(line)
