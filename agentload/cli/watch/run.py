"""Execute a job once, now: what a scheduler calls.

Exits with 0 when nothing got worse, 3 on a regression, a changed identity or void figures, and 1 when the job could not run. While an
execution still runs, another is recorded as skipped and exits with 0.

Schedulers start with hardly any environment: variables of keys and webhooks may lie in watch.env beside watch.yaml, as NAME=value lines.

For example:

    agentload watch run nightly-rag
"""

import platform
import sys
import time
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli.watch import _options as opt
from agentload.watch.execute import execute, latest_ns
from agentload.watch.job import Job
from agentload.watch.jobs_file import Jobs, complete_environment, read_jobs
from agentload.watch.ledger import history
from agentload.watch.notices import send, summary
from agentload.watch.schedule import stagger_s, unanswered


def run(
    name: opt.Name,
    *,
    file: opt.JobsFile = opt.DEFAULT,
    scheduled: Annotated[
        bool,
        typer.Option("--scheduled", help="Called by a scheduler: do nothing unless a firing is due, and start with the job's stagger."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the execution as JSON.")] = False,
) -> None:
    jobs = read_jobs(file)
    job = jobs.named(name)
    complete_environment(jobs.path)
    if scheduled and not _is_time(job, jobs):
        return
    executed = execute(job, jobs.database, notice=_say)
    for failure in send(job, executed):
        _say(f"warning: {failure}")
    print_json(executed.execution) if json else print(summary(executed))
    raise typer.Exit(executed.code)


def _is_time(job: Job, jobs: Jobs) -> bool:
    last_ns = latest_ns(history(jobs.database, job.name))
    if not unanswered(job.schedule, last_ns=last_ns, now_ns=time.time_ns()):
        return False
    time.sleep(stagger_s(job.schedule, job=job.name, host=platform.node()))
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr)
