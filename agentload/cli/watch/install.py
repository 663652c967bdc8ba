"""Put the jobs into your crontab between markers, or take them out again; the rest of it stays as it is.

For example:

    agentload watch install

    agentload watch install --remove
"""

from typing import Annotated

import typer

from agentload.cli.watch import _options as opt
from agentload.errors import AgentloadError
from agentload.watch import schedulers
from agentload.watch.jobs_file import read_jobs


def run(
    *,
    file: opt.JobsFile = opt.DEFAULT,
    remove: Annotated[bool, typer.Option("--remove", help="Take them out again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the crontab as it would be.")] = False,
) -> None:
    before = schedulers.read_crontab()
    if remove:
        after, jobs = schedulers.without(before, str(file.resolve())), None
    else:
        jobs = read_jobs(file)
        if not jobs.jobs:
            raise AgentloadError(f"{file}: no jobs in it", hint="agentload watch add --help")
        after = schedulers.installed(before, schedulers.crontab(jobs.jobs, schedulers.place(jobs)), str(jobs.path))
    if dry_run:
        print(after, end="")
        return
    if after != before:
        schedulers.write_crontab(after)
    if jobs is None:
        print(f"the jobs of {file} are not in the crontab" + ("" if after != before else " and were not"))
        return
    logs = jobs.database.with_suffix(".journal")
    logs.mkdir(parents=True, exist_ok=True)  # the shell opens them before we start
    print(f"{len(jobs.jobs)} job{'' if len(jobs.jobs) == 1 else 's'} of {file} in the crontab; logs lie in {logs}")
