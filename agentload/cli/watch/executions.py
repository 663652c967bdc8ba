"""Executions of jobs: make them, say what came of them,
accept or mute a change, hand them to other programs.
"""

import asyncio
import math
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from agentload.cli._print import ABSENT, blocks, notice, print_json, print_table
from agentload.cli.watch import DEFAULT, JobsFile, Name
from agentload.errors import AgentloadError, GateError, UsageError
from agentload.model.record import Record
from agentload.report.format import plural, when
from agentload.watch import by_hand, ledger
from agentload.watch.alarms import AMISS, KINDS, Alarm, alarms_of, loud_alarms
from agentload.watch.daemon import serve
from agentload.watch.execute import execute
from agentload.watch.history import Execution, executions, latest_ns
from agentload.watch.job import Job, in_words
from agentload.watch.jobs_file import Jobs, complete_environment, read_jobs
from agentload.watch.notices import junit, send
from agentload.watch.schedule import firings, stagger_s, unanswered_firings
from agentload.watch.schedulers import crontab, systemd, this_machine
from agentload.watch.trends import Trend, trends
from agentload.watch.words import alarm_words, dollars, level_words, outcome_words, summary


def run(
    name: Name,
    *,
    file: JobsFile = DEFAULT,
    scheduled: Annotated[
        bool,
        (
            "Called by a scheduler: do nothing unless a firing is due, and start with the "
            "job's stagger."
        ),
    ] = False,
    json: Annotated[bool, "Print the execution as JSON."] = False,
) -> None:
    """Execute a job once, now: what a scheduler calls.

    Exits with 0 when nothing got worse, 3 on a regression, a changed identity
    or invalid figures, 1 when the job could not run. While an execution still
    runs, another is recorded as skipped and exits with 0.

    Schedulers start with hardly any environment: variables of keys and
    webhooks may stand in watch.env next to watch.yaml, as NAME=value lines.

    For example:

        agentload watch run nightly-rag
    """
    jobs = read_jobs(file)
    job = jobs.named(name)
    complete_environment(jobs.path)
    if scheduled and not _is_time(job, jobs):
        return
    executed = execute(job, jobs.database, notice=notice)
    for failure in send(job, executed):
        notice(f"warning: {failure}")
    print_json(executed.execution) if json else print(summary(executed))
    raise typer.Exit(executed.code)


def _is_time(job: Job, jobs: Jobs) -> bool:
    now_ns = time.time_ns()
    last_ns = latest_ns(ledger.history(jobs.database, job.name), now_ns=now_ns)
    if not unanswered_firings(job.schedule, last_ns=last_ns, now_ns=now_ns):
        return False
    time.sleep(stagger_s(job.schedule, job=job.name, host=platform.node()))
    return True


def daemon(*, file: JobsFile = DEFAULT) -> None:
    """Execute jobs as they fall due, in the foreground: for containers, where there is no cron.

    SIGTERM and Ctrl-C let what is in flight come to its end, and store it.

    For example:

        agentload watch daemon --file /etc/agentload/watch.yaml
    """
    jobs = read_jobs(file)
    if not jobs.jobs:
        raise AgentloadError(f"{file}: no jobs in it", hint="agentload watch add --help")
    asyncio.run(serve(jobs.jobs, this_machine(jobs), say=lambda text: print(text, flush=True)))


def accept(
    name: Name,
    *,
    file: JobsFile = DEFAULT,
    run: Annotated[str | None, "Run to accept; the latest usable one when omitted."] = None,
    note: Annotated[str | None, "Why, for the history."] = None,
) -> None:
    """Accept a change: later runs are compared with
    this one, and alarms on what was before are closed.

    The run is kept from then on, and the history says when and why.

    For example:

        agentload watch accept nightly-rag --note "vLLM 0.11, slower prefill is known"
    """
    jobs = read_jobs(file)
    job = jobs.named(name)
    complete_environment(jobs.path)
    accepted = by_hand.accept(job, jobs.database, run=run, note=note, notice=notice)
    print(summary(accepted))
    for failure in send(job, accepted):
        notice(f"warning: {failure}")


def mute(
    name: Name,
    kind: Annotated[
        str,
        typer.Argument(
            help="regression, improvement, dead-endpoint, changed-identity or failing-schedule."
        ),
    ],
    *,
    until: Annotated[
        datetime,
        typer.Option(formats=["%Y-%m-%d"], help="First day (UTC) on which to hear of it again."),
    ],
    file: JobsFile = DEFAULT,
    note: Annotated[str | None, "Why, for the history."] = None,
) -> None:
    """Mute a kind of alarm of a job until a day: it stays
    open and listed, but calls no webhook and fails no check.

    Today's date ends a mute. To compare later runs with
    a change that is here to stay, use `agentload watch accept`.

    For example:

        agentload watch mute nightly-rag regression --until 2026-12-01 \
            --note "the new kernel comes on Monday"
    """
    jobs = read_jobs(file)
    job = jobs.named(name)
    chosen = next((each for each in KINDS if each == kind.replace("-", " ")), None)
    if chosen is None:
        raise UsageError(
            f"no kind of alarm '{kind}'",
            hint=f"any of: {', '.join(each.replace(' ', '-') for each in KINDS)}",
        )
    today = datetime.now(UTC).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    if until < today:
        raise UsageError(
            f"--until {until:%Y-%m-%d} has passed",
            hint=f"--until {today:%Y-%m-%d} ends a mute at once",
        )
    until_ns = int(until.replace(tzinfo=UTC).timestamp()) * 10**9
    print(
        summary(
            by_hand.mute(job, jobs.database, chosen, until_ns=until_ns, note=note, notice=notice)
        )
    )


class Status(Record):
    """What `--json` prints for each job."""

    job: str
    is_running: bool
    latest: Execution | None
    alarms: tuple[Alarm, ...]
    """Open ones."""
    next_ns: int
    executions: int


def status(
    *, file: JobsFile = DEFAULT, json: Annotated[bool, "Print the jobs as JSON."] = False
) -> None:
    """Show each job: its latest execution, its open alarms, its next firing.

    Exits with 3 while an alarm is open that is neither muted nor an improvement.

    For example:

        agentload watch status
    """
    jobs = read_jobs(file)
    found = [_status(job, jobs) for job in jobs.jobs]
    if json:
        print_json(found)
    else:
        _show(found)
    amiss = [
        each.job
        for each in found
        for alarm in loud_alarms(each.alarms, time.time_ns())
        if alarm.kind in AMISS
    ]
    if amiss:
        raise GateError(
            f"{plural(len(amiss), 'open alarm')}, so the exit code is 3",
            hint=f"agentload watch history {amiss[0]} --file {file}",
        )


def _status(job: Job, jobs: Jobs) -> Status:
    past = ledger.history(jobs.database, job.name)
    ran = executions(past)
    with ledger.lock(jobs.database, job.name) as is_free:
        pass
    return Status(
        job=job.name,
        is_running=not is_free,
        latest=ran[-1] if ran else None,
        alarms=tuple(alarm for alarm in alarms_of(job, past) if alarm.is_open),
        next_ns=next(firings(job.schedule, time.time_ns())),
        executions=len(ran),
    )


def _show(found: list[Status]) -> None:
    head = ("job", "executions", "latest (UTC)", "outcome", "alarms", "next (UTC)")
    print_table(head, [_line(each) for each in found])
    for each in found:
        for alarm in each.alarms:
            print(f"{each.job}: {alarm_words(alarm)}")


_OUTCOMES: Final = {"running": "killed", "void": "invalid"}
"""What an outcome is called where it is not the word that is stored."""


def _line(each: Status) -> tuple[str, ...]:
    latest = each.latest
    outcome = "–" if latest is None else _OUTCOMES.get(latest.outcome, latest.outcome)
    state = "running" if each.is_running else outcome
    started = "–" if latest is None else when(latest.started_ns)
    return (
        each.job,
        str(each.executions),
        started,
        state,
        str(len(each.alarms)),
        when(each.next_ns),
    )


DRAWN: Final = 60  # points
FLAT: Final = 0.03  # a smaller span is noise: it is not drawn as high as a change


def history(
    name: Name,
    *,
    file: JobsFile = DEFAULT,
    last: Annotated[int, "As many of the latest executions."] = 20,
    json: Annotated[
        bool, "Print executions, series with change points, and alarms as JSON."
    ] = False,
) -> None:
    """Show what became of a job's firings: each figure over
    its runs, where its level changed, outcomes and alarms.

    A line of blocks spans the smallest and the largest change against the first reference
    run. Suspects are what the servers said differently just before; they are no proof.

    For example:

        agentload watch history nightly-rag --last 30
    """
    jobs = read_jobs(file)
    job = jobs.named(name)
    past = ledger.history(jobs.database, name)
    found = trends(name, past, alarms_of(job, past))
    if json:
        print_json(found)
        return
    if not past:
        print(f"{name} was not executed yet: agentload watch run {name}")
        return
    for one in found.series:
        for line in _trend_lines(one):
            print(line)
    shown = past[-last:] if last > 0 else ()
    series = list(dict.fromkeys(change.series for each in shown for change in each.detail.changes))
    cost = any(each.detail.usd is not None for each in shown)
    head = (
        "started (UTC)",
        "took",
        *(["USD"] if cost else []),
        *map(in_words, series),
        "run",
        "outcome",
    )
    print_table(head, [_cells(each, series, cost=cost) for each in shown])
    for alarm in found.alarms:
        until = "open" if alarm.closed_ns is None else f"closed {when(alarm.closed_ns)}"
        print(f"{when(alarm.raised_ns)}, {until}: {alarm_words(alarm)}")


def _trend_lines(series: Trend) -> Iterator[str]:
    """Yield a figure's course over the latest runs, and its changes of level."""
    values = [point.value for point in series.points][-DRAWN:]
    low, high = min(values), max(values)
    yield (
        f"{in_words(series.name)}  {blocks(values, low=low, span=max(high - low, FLAT))}  "
        f"{low:+.1%} to {high:+.1%} against the first reference run"
    )
    for level in series.change_points:
        yield f"  {level_words(series, level)}"


def _cells(each: Execution, series: list[str], *, cost: bool) -> tuple[str, ...]:
    found = {
        change.series: f"{math.expm1(change.log_ratio):+.1%}" for change in each.detail.changes
    }
    cells = [when(each.started_ns), ABSENT]
    if each.ended_ns is not None:
        cells[1] = f"{(each.ended_ns - each.started_ns) / 1e9:,.0f} s"
    if cost:
        cells.append("–" if each.detail.usd is None else dollars(each.detail.usd))
    cells += [found.get(name, "–") for name in series]
    return (*cells, each.run_id or "–", outcome_words(each))


Given = TypeVar("Given")


def export(
    kind: Annotated[str, typer.Argument(help="crontab, systemd or junit.", metavar="KIND")],
    *,
    file: JobsFile = DEFAULT,
    job: Annotated[str | None, "Job of a junit file."] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for systemd.")] = None,
) -> None:
    """Write ready files for a scheduler or for continuous integration.

    A crontab and the JUnit file of a job go to stdout, systemd's units into a folder.

    For example:

        agentload watch export systemd --out /etc/systemd/system
    """
    jobs = read_jobs(file)
    match kind:
        case "crontab":
            print(crontab(jobs.jobs, this_machine(jobs)), end="")
        case "systemd":
            folder = _required_option(out, "--out")
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in systemd(jobs.jobs, this_machine(jobs)).items():
                (folder / name).write_text(text, encoding="utf-8")
                print(folder / name)
        case "junit":
            print(_junit(jobs, _required_option(job, "--job")), end="")
        case _:
            raise UsageError(f"no format '{kind}'", hint="crontab, systemd or junit")


def _junit(jobs: Jobs, name: str) -> str:
    job = jobs.named(name)
    past = ledger.history(jobs.database, name)
    if not past:
        raise UsageError(f"{name} was not executed yet", hint=f"agentload watch run {name}")
    return junit(name, executions(past)[-1], alarms_of(job, past))


def _required_option(value: Given | None, option: str) -> Given:
    """Return the value of an option; raise UsageError without one."""
    if value is None:
        raise UsageError(f"{option} is needed", hint="agentload watch export --help")
    return value
