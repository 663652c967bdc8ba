"""Do what only a person does: make a run the reference, or mute a kind of alarm."""

import time
from collections.abc import Callable
from pathlib import Path

from agentload.errors import AgentloadError
from agentload.model.rows import RunRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.watch.alarms import AlarmKind
from agentload.watch.books import Executed, free_books
from agentload.watch.history import Detail, Execution, Outcome
from agentload.watch.job import Job
from agentload.watch.judge import has_control


def accept(
    job: Job, database: Path, *, run: str | None, note: str | None, notice: Callable[[str], None]
) -> Executed:
    """Make a run the reference, by default the latest usable one.

    Alarms that were raised against the reference before are closed.
    """
    if job.reference is not None:
        raise AgentloadError(
            f"job '{job.name}': its reference is fixed in the jobs file: {job.reference}",
            hint="change or remove `reference:` there",
        )
    with free_books(job, database, notice, verb="accept") as books:
        past = books.history()
        chosen = _usable(job, past, run)
        with reading(database) as connection:
            if not tables.rows(connection, RunRow, run_id=chosen):
                raise AgentloadError(
                    f"the calls of run {chosen} were deleted: nothing can be compared with it",
                    hint="accept a later run",
                )
        if job.control and not has_control(database, chosen):
            notice(
                f"run {chosen} has no A/A control: the next execution plays one, and may "
                "take twice the budget"
            )
        return books.conclude(_deed(job, "accepted", Detail(reason=note), run=chosen), past)


def _usable(job: Job, past: tuple[Execution, ...], run: str | None) -> str:
    done = (each.run_id for each in past if each.outcome == "done")
    usable = [each for each in done if each is not None]
    if run in usable:
        return run
    if run is None and usable:
        return usable[-1]
    missing = "has no usable run yet" if run is None else f"has no usable run {run}"
    raise AgentloadError(f"job '{job.name}' {missing}", hint=f"agentload watch history {job.name}")


def mute(
    job: Job,
    database: Path,
    kind: AlarmKind,
    *,
    until_ns: int,
    note: str | None,
    notice: Callable[[str], None],
) -> Executed:
    """Mute a kind of alarm until an instant; an instant that has passed unmutes it."""
    with free_books(job, database, notice, verb="mute") as books:
        muted = _deed(job, "muted", Detail(reason=note, kind=kind, until_ns=until_ns))
        return books.conclude(muted, books.history())


def _deed(job: Job, outcome: Outcome, detail: Detail, *, run: str | None = None) -> Execution:
    now_ns = time.time_ns()
    return Execution(
        job=job.name, started_ns=now_ns, ended_ns=now_ns, outcome=outcome, run_id=run, detail=detail
    )
