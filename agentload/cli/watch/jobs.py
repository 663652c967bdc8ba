"""Jobs: what their file and the crontab hold."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentload.cli._print import notice, print_json, print_table
from agentload.cli.watch import DEFAULT, JobsFile, Name
from agentload.errors import AgentloadError, EndpointError
from agentload.layout.cost import Cost, about
from agentload.model.record import Record
from agentload.report.format import when
from agentload.run.arms import read_arms
from agentload.study.parts import KINDS
from agentload.study.quantity import parse_named
from agentload.watch import jobs_file, schedulers
from agentload.watch.job import Job
from agentload.watch.jobs_file import read_jobs
from agentload.watch.play import estimate
from agentload.watch.schedule import firings

WAIT_CAPS: Final = ("user=60",)
"""Caps of a job that names none: a trace's users sleep at night, and so would each run."""


def add(
    name: Name,
    *,
    trace: Annotated[
        list[str], "Trace file, or name of a shipped trace; several are played as one mix."
    ],
    endpoints: Annotated[str, "a=URL,b=URL, an arms file (YAML), or emulated:PROFILE[/ARM+ARM]."],
    cron: Annotated[str, "minute hour day month weekday, such as '0 2 * * *'."],
    file: JobsFile = DEFAULT,
    time_zone: Annotated[str, "Zone in which the schedule is read."] = "UTC",
    stagger: Annotated[
        float, "Start up to this many seconds later, by the job's own fixed share."
    ] = 0.0,
    model: Annotated[str | None, "Model to ask for; the only one served when omitted."] = None,
    api_key_env: Annotated[str | None, "Environment variable that holds the API key."] = None,
    pairs: Annotated[int, typer.Option(help="Block pairs of each run.", min=3)] = 6,
    calls: Annotated[int | None, "Budget: calls of each run, on all arms together."] = None,
    minutes: Annotated[float, "Time limit of each run."] = 60.0,
    usd: Annotated[
        float | None, "What the servers may cost during each run, by the price of their GPUs."
    ] = None,
    wait_cap: Annotated[
        list[str] | None, "Cap one kind of wait in seconds, such as user=5; user=60 when omitted."
    ] = None,
    keep_runs: Annotated[int | None, "Delete the calls of older runs."] = None,
) -> None:
    """Add a job to the jobs file, which is made if it does not exist.

    Paths are relative to the jobs file, here and in it. What has no option here
    is edited in the file: load, policy, metrics, noise, reference, notices.

    For example:

        agentload watch add nightly-rag --trace rag --endpoints prod=http://127.0.0.1:8000/v1 \
            --cron "0 2 * * *" --time-zone Europe/Berlin
    """
    schedule: dict[str, Any] = {
        "cron": cron,
        "time_zone": time_zone,
        **({"stagger_s": stagger} if stagger else {}),
    }
    entry: dict[str, Any] = {
        "traces": trace,
        "endpoints": endpoints,
        "schedule": schedule,
        "pairs": pairs,
    }
    entry |= {
        key: value
        for key, value in (("model", model), ("api_key_env", api_key_env))
        if value is not None
    }
    bounds = {"calls": calls, "minutes": minutes, "usd": usd}
    entry["budget"] = {key: value for key, value in bounds.items() if value is not None}
    if keep_runs is not None:
        entry["retention"] = {"runs": keep_runs}
    entry["load"] = {"wait_cap_s": dict(map(_wait_cap, wait_cap or WAIT_CAPS))}
    added = jobs_file.new_job(file, name, entry)
    expected = _estimate(added, database=file.with_name(jobs_file.DATABASE))
    jobs_file.add(file, name, entry)
    print(f"added {name} to {file}")
    if expected is not None:
        _print_estimate(added, expected)
    print(
        f"Next: agentload watch run {name} --file {file}; then agentload watch install "
        f"--file {file}"
    )


def _estimate(added: Job, *, database: Path) -> Cost | None:
    """Return what a run of a new job takes; what cannot be played shows now, not in the night.

    None where keys are missing, which may be set where the job runs alone.
    """
    try:
        read_arms(added.study.servers)
    except EndpointError as error:
        notice(f"warning: how long a run takes is not known here: {error.message}")
        return None
    return estimate(added, database=database, notice=notice)


def _wait_cap(said: str) -> tuple[str, float]:
    """Return a kind of wait and its cap in seconds."""
    return parse_named(said, "--wait-cap", unit="s", kinds=KINDS, example="user=30")


def _print_estimate(added: Job, expected: Cost) -> None:
    """Print how long a run of a new job takes, and what to do if its time limit is shorter."""
    twice = "; the first one plays everything twice, as a control" if added.control else ""
    print(f"a run takes {about(expected.minutes)}{twice}")
    if expected.minutes > added.budget.minutes:
        longest = expected.longest_wait
        notice(
            f"warning: a run is stopped after {added.budget.minutes:g} min, its time limit: "
            + ("" if longest is None else f"{longest}; ")
            + "--calls 400 plays windows of the trace instead of all of it"
        )


def remove(name: Name, *, file: JobsFile = DEFAULT) -> None:
    """Take a job out of the jobs file; its history stays in the database.

    For example:

        agentload watch remove nightly-rag
    """
    jobs_file.remove(file, name)
    print(f"removed {name} from {file}; agentload watch install brings the crontab up to date")


class JobSchedule(Record):
    """What `--json` prints for each job."""

    job: str
    cron: str
    time_zone: str
    next_ns: int
    traces: tuple[str, ...]
    endpoints: str


def list_(
    *, file: JobsFile = DEFAULT, json: Annotated[bool, "Print the jobs as JSON."] = False
) -> None:
    """List the jobs of a file with their schedules.

    For example:

        agentload watch list
    """
    now_ns = time.time_ns()
    lines = [
        JobSchedule(
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
    print_table(
        head,
        [
            (e.job, e.cron, e.time_zone, when(e.next_ns), ",".join(e.traces), e.endpoints)
            for e in lines
        ],
    )


def install(
    *,
    file: JobsFile = DEFAULT,
    remove: Annotated[bool, "Take them out again."] = False,
    dry_run: Annotated[bool, "Print the crontab as it would be."] = False,
) -> None:
    """Put the jobs into your crontab between markers, or
    take them out again; the rest of it stays as it is.

    For example:

        agentload watch install

        agentload watch install --remove
    """
    before = schedulers.read_crontab()
    if remove:
        after = schedulers.without_block(before, str(file.resolve()))
        jobs = None
    else:
        jobs = read_jobs(file)
        if not jobs.jobs:
            raise AgentloadError(f"{file}: no jobs in it", hint="agentload watch add --help")
        after = schedulers.with_block(
            before, schedulers.crontab(jobs.jobs, schedulers.this_machine(jobs)), str(jobs.path)
        )
    if dry_run:
        print(after, end="")
        return
    if after != before:
        schedulers.write_crontab(after)
    if jobs is None:
        print(
            f"the jobs of {file} are not in the crontab"
            + ("" if after != before else " and were not")
        )
        return
    logs = jobs.database.with_suffix(".journal")
    logs.mkdir(parents=True, exist_ok=True)  # the shell opens them before we start
    print(
        f"{len(jobs.jobs)} job{'' if len(jobs.jobs) == 1 else 's'} of {file} in the "
        f"crontab; logs lie in {logs}"
    )
