"""Accept a change: a run becomes the reference, and what was raised against the one before it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from agentload.errors import AgentloadError
from agentload.store.database import reading
from agentload.watch import ledger
from agentload.watch.execute import Executed, closed, mended, warn
from agentload.watch.history import Detail, Execution
from agentload.watch.job import Job
from agentload.watch.judge import has_control
from agentload.watch.lock import locked


def accept(job: Job, database: Path, *, run: str | None, note: str | None, notice: Callable[[str], None]) -> Executed:
    """Make a run the reference, by default the latest usable one; what was raised against the one before it is over."""
    if job.reference is not None:
        raise AgentloadError(
            f"job '{job.name}': its reference is fixed in the jobs file: {job.reference}", hint="change or remove `reference:` there"
        )
    with locked(database, job.name) as is_mine:
        if not is_mine:
            raise AgentloadError(f"job '{job.name}' is being executed", hint="accept once it has ended: agentload watch status")
        warn(ledger.bring_in(database, job.name), notice)
        past = mended(job, database)
        usable = [each.run_id for each in past if each.outcome == "done"]
        chosen = run or next(reversed(usable), None)
        if chosen is None or chosen not in usable:
            told = "has no usable run yet" if chosen is None else f"has no usable run {chosen}"
            raise AgentloadError(f"job '{job.name}' {told}", hint=f"agentload watch history {job.name}")
        _check_kept(database, chosen)
        if job.control and not has_control(database, chosen):
            notice(f"run {chosen} has no A/A control: the next execution plays one, and may take twice the budget")
        now_ns = time.time_ns()
        accepted = Execution(
            job=job.name, started_ns=now_ns, ended_ns=now_ns, outcome="accepted", run_id=chosen, detail=Detail(reason=note)
        )
        return closed(job, database, accepted, past, notice)


def _check_kept(database: Path, run: str) -> None:
    with reading(database) as connection:
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", [run]).fetchone() is None:
            raise AgentloadError(f"the calls of run {run} are gone: nothing can be held against it", hint="accept a later run")
