"""Execute jobs as they fall due, in the foreground: for containers, where there is no cron.

SIGTERM and Ctrl-C let what is in flight come to its end, and store it.

For example:

    agentload watch daemon --file /etc/agentload/watch.yaml
"""

import asyncio

from agentload.cli.watch import _options as opt
from agentload.errors import AgentloadError
from agentload.watch.daemon import serve
from agentload.watch.jobs_file import read_jobs
from agentload.watch.schedulers import place


def run(*, file: opt.JobsFile = opt.DEFAULT) -> None:
    jobs = read_jobs(file)
    if not jobs.jobs:
        raise AgentloadError(f"{file}: no jobs in it", hint="agentload watch add --help")
    asyncio.run(serve(jobs.jobs, place(jobs), say=lambda text: print(text, flush=True)))
