"""Write ready files for a scheduler, a dashboard or continuous integration.

crontab and kubernetes go to stdout, systemd's units and Parquet files into a folder; digest, junit and prometheus need a job.

For example:

    agentload watch export systemd --out /etc/systemd/system

    agentload watch export kubernetes --image registry/agentload:1 | kubectl apply -f -
"""

import sys
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from agentload.cli.watch import _options as opt
from agentload.errors import UsageError
from agentload.watch.execute import watched
from agentload.watch.history import executions
from agentload.watch.jobs_file import Jobs, read_jobs
from agentload.watch.kubernetes import brought, kubernetes
from agentload.watch.ledger import history, parquet
from agentload.watch.notices import digest, junit, prometheus
from agentload.watch.schedulers import crontab, place, systemd

Given = TypeVar("Given")


def run(
    kind: Annotated[str, typer.Argument(help="crontab, systemd, kubernetes, parquet, digest, junit or prometheus.", metavar="KIND")],
    *,
    file: opt.JobsFile = opt.DEFAULT,
    job: Annotated[str | None, typer.Option(help="Job of a digest, junit or prometheus file.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for systemd and parquet.")] = None,
    image: Annotated[str | None, typer.Option(help="Container image for kubernetes.")] = None,
) -> None:
    jobs = read_jobs(file)
    match kind:
        case "crontab":
            print(crontab(jobs.jobs, place(jobs)), end="")
        case "kubernetes":
            print(kubernetes(jobs, image=_given(image, "--image")), end="")
            for path, wanted in brought(jobs).items():
                print(f"note: {path} has to lie on the claim agentload-watch as {wanted} (kubectl cp)", file=sys.stderr)
        case "systemd":
            folder = _given(out, "--out")
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in systemd(jobs.jobs, place(jobs)).items():
                (folder / name).write_text(text, encoding="utf-8")
                print(folder / name)
        case "parquet":
            for path in parquet(jobs.database, _given(out, "--out")):
                print(path)
        case "digest" | "junit" | "prometheus":
            print(_text(kind, jobs, _given(job, "--job")), end="")
        case _:
            raise UsageError(f"no format '{kind}'", hint="crontab, systemd, kubernetes, parquet, digest, junit or prometheus")


def _text(kind: str, jobs: Jobs, name: str) -> str:
    job = jobs.named(name)
    past = history(jobs.database, name)
    found = watched(job, past)
    if kind == "digest":
        return digest(name, past, found)
    if kind == "prometheus":
        return prometheus(name, past, found)
    if not past:
        raise UsageError(f"{name} was not executed yet", hint=f"agentload watch run {name}")
    return junit(name, executions(past)[-1], found)


def _given(value: Given | None, option: str) -> Given:
    if value is None:
        raise UsageError(f"{option} is needed", hint="agentload watch export --help")
    return value
