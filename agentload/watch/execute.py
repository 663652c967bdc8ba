"""Execute a job once, as a scheduler asks: lock, replay, hold
against the reference, fold alarms, write all of it down.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agentload.errors import AgentloadError, EndpointError, EvidenceError, StoreError
from agentload.model.rows import RunRow
from agentload.run.record import new_run_id
from agentload.store import tables
from agentload.store.database import reading, writing
from agentload.store.places import journal_folder
from agentload.store.runs import delete
from agentload.watch import ledger
from agentload.watch.alarms import Alarm, Kind, Rule, alarms, exit_code
from agentload.watch.history import (
    Detail,
    Execution,
    Outcome,
    executions,
    expendable,
    floored,
    floors,
    reference,
)
from agentload.watch.job import Job
from agentload.watch.judge import facts, fault, has_control, headline, since
from agentload.watch.ledger import alarm_rows, execution_row, job_row, locked
from agentload.watch.play import play
from agentload.watch.schedule import CORRECTED_NS, unanswered

KILLED: Final = "the process was killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What one execution came to."""

    execution: Execution
    history: tuple[Execution, ...]
    alarms: tuple[Alarm, ...]
    raised: tuple[Alarm, ...]
    closed: tuple[Alarm, ...]
    code: int


def execute(job: Job, database: Path, *, notice: Callable[[str], None]) -> Executed:
    """Execute *job* now; an execution that still runs makes this one `skipped`."""
    started_ns = time.time_ns()
    with locked(database, job.name) as is_mine:
        if not is_mine:
            return _skipped(job, database, started_ns)
        warn(ledger.bring_in(database, job.name), notice)
        past = mended(job, database)
        due = unanswered(
            job.schedule, last_ns=latest_ns(past, now_ns=started_ns), now_ns=started_ns
        )
        rows = [job_row(job, at_ns=started_ns)]
        if len(due) > 1:
            gone = _missed(job, due[:-1])
            past = (*past, gone)
            ledger.note(database, job.name, [execution_row(gone)])
        run = new_run_id()
        opened = Execution(
            job=job.name,
            started_ns=started_ns,
            due_ns=due[-1] if due else None,
            outcome="running",
            run_id=run,
        )
        ledger.note(database, job.name, [*rows, execution_row(opened)])
        ended = _played(job, database, opened, past, notice)
        return closed(job, database, ended, past, notice)


def latest_ns(past: tuple[Execution, ...], *, now_ns: int) -> int | None:
    """Return when a job was last executed; an instant far ahead is of a clock that was wrong."""
    return max(
        (each.started_ns for each in executions(past) if each.started_ns <= now_ns + CORRECTED_NS),
        default=None,
    )


def rule(job: Job, past: tuple[Execution, ...]) -> Rule:
    """Return what counts as a change for a job."""
    arms = {change.arm for each in past for change in each.detail.changes}
    return Rule(
        min_change=job.setting.policy.min_change,
        noise=job.noise,
        series=max(1, len(arms) * len(job.metrics)),
    )


def watched(job: Job, past: tuple[Execution, ...]) -> tuple[Alarm, ...]:
    """Fold a job's history into its alarms, on the metrics that it watches."""
    return alarms((_only(each, job) for each in past), rule(job, past))


def _only(each: Execution, job: Job) -> Execution:
    detail = each.detail
    kept = tuple(change for change in detail.changes if change.metric in job.metrics)
    return replace(each, detail=replace(detail, changes=kept))


def mended(job: Job, database: Path) -> tuple[Execution, ...]:
    """Read the history; what still says `running` while the lock is ours was killed."""
    past = ledger.history(database, job.name)
    killed = [
        replace(each, outcome="failed", detail=replace(each.detail, reason=KILLED))
        for each in past
        if each.outcome == "running"
    ]
    if killed:
        ledger.note(database, job.name, map(execution_row, killed))
    mended = {each.started_ns: each for each in killed}
    return tuple(mended.get(each.started_ns, each) for each in past)


def _missed(job: Job, firings: tuple[int, ...]) -> Execution:
    count = len(firings)
    told = f"{count} firing{'' if count == 1 else 's'} that nobody answered"
    # Stamped with the firing itself: it stands in the history where it was due.
    return Execution(
        job=job.name,
        started_ns=firings[-1],
        ended_ns=firings[-1],
        due_ns=firings[0],
        outcome="missed",
        detail=Detail(reason=told, missed=count),
    )


def _skipped(job: Job, database: Path, started_ns: int) -> Executed:
    execution = Execution(
        job=job.name,
        started_ns=started_ns,
        ended_ns=time.time_ns(),
        outcome="skipped",
        detail=Detail(reason="the execution before was still running"),
    )
    # The journal alone: the execution that runs loads it when
    # it ends, and this one is not to wait for a database.
    ledger.note(database, job.name, [execution_row(execution)])
    return Executed(
        execution=execution, history=(execution,), alarms=(), raised=(), closed=(), code=0
    )


def _played(
    job: Job,
    database: Path,
    opened: Execution,
    past: tuple[Execution, ...],
    notice: Callable[[str], None],
) -> Execution:
    held_against = reference(past, job.reference)
    run = opened.run_id
    assert run is not None
    kept = Detail()
    try:
        known = {} if held_against is None else floors(past, held_against)
        is_floored = held_against is not None and (
            bool(known) or has_control(database, held_against)
        )
        outcome = play(
            job,
            run=run,
            database=database,
            is_controlled=job.control and not is_floored,
            notice=notice,
        )
        kept = Detail(usd=outcome.usd)
        if outcome.load_error is not None:
            return _ended(
                opened,
                "failed",
                replace(kept, reason=f"the run is in its journal only: {outcome.load_error}"),
            )
        if outcome.died is not None:
            return _ended(opened, "dead", replace(kept, reason=outcome.died))
        if outcome.stopped is not None:
            return _ended(opened, "failed", replace(kept, reason=outcome.stopped))
        decided = headline(database, run, job=job) if len(outcome.arms) > 1 else None
        kept = replace(kept, facts=facts(database, run), headline=decided)
        # One disturbed run as the reference would spoil every later one.
        void = outcome.void or (fault(database, run, job=job) if held_against is None else None)
        if void is not None:
            return _ended(opened, "void", replace(kept, reason=void))
        if held_against is None:
            return _ended(opened, "done", kept)
        changes, void = since(database, run, held_against, arms=outcome.arms, job=job)
    except EndpointError as error:
        return _ended(opened, "dead", replace(kept, reason=error.message))
    except EvidenceError as error:
        return _ended(opened, "void", replace(kept, reason=error.message))
    except (AgentloadError, OSError) as error:
        return _ended(opened, "failed", replace(kept, reason=str(error)))
    word: Outcome = "done" if void is None else "void"
    return _ended(
        opened,
        word,
        replace(kept, reason=void, reference=held_against, changes=floored(changes, known)),
    )


def closed(
    job: Job,
    database: Path,
    ended: Execution,
    past: tuple[Execution, ...],
    notice: Callable[[str], None],
) -> Executed:
    """Write down what became of a job, with the
    alarms that follow from it, and forget old calls.
    """
    ledger.note(database, job.name, [execution_row(ended)])
    warn(ledger.bring_in(database, job.name), notice)
    stored = _told_before(job, database, past)
    whole = (*past, ended)
    found = watched(job, whole)
    rows = alarm_rows(job.name, found, stored, at_ns=time.time_ns())
    if rows:
        ledger.note(database, job.name, rows)
    warn(ledger.bring_in(database, job.name), notice)
    try:
        _forget(job, database, whole)
    except StoreError as error:
        notice(f"old runs are kept until the next execution: {error.message}")
    before = {(each.kind, each.metric, each.raised_ns): each for each in stored}
    fresh = [each for each in found if (each.kind, each.metric, each.raised_ns) not in before]
    over = [each for each in found if not each.is_open and each not in stored]
    return Executed(
        execution=ended,
        history=whole,
        alarms=found,
        raised=tuple(fresh),
        closed=tuple(over),
        code=exit_code(ended, found),
    )


def _told_before(job: Job, database: Path, past: tuple[Execution, ...]) -> tuple[Alarm, ...]:
    """Read the alarms that were told of; while the database
    cannot be asked, they are what followed from the history.
    """
    try:
        return ledger.stored_alarms(database, job.name)
    except StoreError:
        is_new = (
            past and past[-1].outcome == "missed"
        )  # written by this execution, and nobody has heard of it
        return watched(job, past[:-1] if is_new else past)


def _forget(job: Job, database: Path, past: tuple[Execution, ...]) -> None:
    """Delete the calls of runs that are older than the
    job keeps; a run that is gone already is no news.
    """
    old = expendable(past, job.keep_runs, reference(past, job.reference))
    if not old:
        return
    with writing(database, patience_s=ledger.DATABASE_S) as connection:
        known = {row.run_id for row in tables.rows(connection, RunRow)}
        for run in sorted(known & set(old)):
            delete(connection, run)
    for run in old:
        shutil.rmtree(journal_folder(database, run), ignore_errors=True)


def _ended(opened: Execution, outcome: Outcome, detail: Detail) -> Execution:
    return replace(opened, outcome=outcome, ended_ns=time.time_ns(), detail=detail)


def warn(text: str | None, notice: Callable[[str], None]) -> None:
    """Say why the database does not have all of it yet, where that is so."""
    if text is not None:
        notice(f"not loaded yet: {text}")


def accept(
    job: Job, database: Path, *, run: str | None, note: str | None, notice: Callable[[str], None]
) -> Executed:
    """Make a run the reference, by default the latest usable
    one; what was raised against the one before it is over.
    """
    if job.reference is not None:
        raise AgentloadError(
            f"job '{job.name}': its reference is fixed in the jobs file: {job.reference}",
            hint="change or remove `reference:` there",
        )
    with locked(database, job.name) as is_mine:
        if not is_mine:
            raise AgentloadError(
                f"job '{job.name}' is being executed",
                hint="accept once it has ended: agentload watch status",
            )
        warn(ledger.bring_in(database, job.name), notice)
        past = mended(job, database)
        usable = [each.run_id for each in past if each.outcome == "done"]
        chosen = run or next(reversed(usable), None)
        if chosen is None or chosen not in usable:
            told = "has no usable run yet" if chosen is None else f"has no usable run {chosen}"
            raise AgentloadError(
                f"job '{job.name}' {told}", hint=f"agentload watch history {job.name}"
            )
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
        return closed(
            job, database, _by_hand(job, "accepted", Detail(reason=note), run=chosen), past, notice
        )


def mute(
    job: Job,
    database: Path,
    kind: Kind,
    *,
    until_ns: int,
    note: str | None,
    notice: Callable[[str], None],
) -> Executed:
    """Want to hear nothing of a kind of alarm until an instant; one that has passed ends that."""
    with locked(database, job.name) as is_mine:
        if not is_mine:
            raise AgentloadError(
                f"job '{job.name}' is being executed",
                hint="mute once it has ended: agentload watch status",
            )
        warn(ledger.bring_in(database, job.name), notice)
        muted = _by_hand(job, "muted", Detail(reason=note, kind=kind, until_ns=until_ns))
        return closed(job, database, muted, mended(job, database), notice)


def _by_hand(job: Job, outcome: Outcome, detail: Detail, *, run: str | None = None) -> Execution:
    now_ns = time.time_ns()
    return Execution(
        job=job.name, started_ns=now_ns, ended_ns=now_ns, outcome=outcome, run_id=run, detail=detail
    )
