"""Accept a change: later runs are held against this one, and alarms on what was before are closed.

The run is kept from then on, and the history says when and why.

For example:

    agentload watch accept nightly-rag --note "vLLM 0.11, slower prefill is known"
"""

import sys
from typing import Annotated

import typer

from agentload.cli.watch import _options as opt
from agentload.watch.execute import accept
from agentload.watch.jobs_file import complete_environment, read_jobs
from agentload.watch.notices import send, summary


def run(
    name: opt.Name,
    *,
    file: opt.JobsFile = opt.DEFAULT,
    run: Annotated[str | None, typer.Option(help="Run to accept; the latest usable one when omitted.")] = None,
    note: Annotated[str | None, typer.Option(help="Why, for the history.")] = None,
) -> None:
    jobs = read_jobs(file)
    job = jobs.named(name)
    complete_environment(jobs.path)
    accepted = accept(job, jobs.database, run=run, note=note, notice=_say)
    print(summary(accepted))
    for failure in send(job, accepted):
        _say(f"warning: {failure}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
