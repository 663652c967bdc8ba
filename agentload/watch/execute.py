"""Execute a job once, as a scheduler asks: lock, replay, compare, write everything down."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentload.errors import AgentloadError, EndpointError, EvidenceError, LaunchError
from agentload.run.record import new_run_id
from agentload.watch.books import Books, Executed
from agentload.watch.history import (
    Detail,
    Execution,
    Outcome,
    floors,
    latest_ns,
    reference,
    with_floors,
)
from agentload.watch.job import Job, in_fields
from agentload.watch.judge import changes_since, facts, fault, has_control, headline
from agentload.watch.ledger import execution_row, job_row, lock
from agentload.watch.play import play
from agentload.watch.schedule import unanswered_firings


def execute(job: Job, database: Path, *, notice: Callable[[str], None]) -> Executed:
    """Execute *job* now; if an execution still runs, this one is `skipped`."""
    started_ns = time.time_ns()
    books = Books(job=job, database=database, notice=notice)
    with lock(database, job.name) as is_mine:
        if not is_mine:
            return _skipped(books, started_ns)
        books.load()
        past = books.history()
        last_ns = latest_ns(past, now_ns=started_ns)
        due = unanswered_firings(job.schedule, last_ns=last_ns, now_ns=started_ns)
        if len(due) > 1:
            gone = _missed(job, due[:-1])
            past = (*past, gone)
            books.note(execution_row(gone))
        opened = Execution(
            job=job.name,
            started_ns=started_ns,
            due_ns=due[-1] if due else None,
            outcome="running",
            run_id=new_run_id(),
        )
        books.note(job_row(job, at_ns=started_ns), execution_row(opened))
        outcome, detail = _played(books, opened, past)
        ended = replace(opened, outcome=outcome, ended_ns=time.time_ns(), detail=detail)
        return books.conclude(ended, past)


def _missed(job: Job, firings: tuple[int, ...]) -> Execution:
    count = len(firings)
    reason = f"{count} firing{'' if count == 1 else 's'} that nobody answered"
    # Dated by the firing itself, so that the history has it where it was due.
    return Execution(
        job=job.name,
        started_ns=firings[-1],
        ended_ns=firings[-1],
        due_ns=firings[0],
        outcome="missed",
        detail=Detail(reason=reason, missed=count),
    )


def _skipped(books: Books, started_ns: int) -> Executed:
    execution = Execution(
        job=books.job.name,
        started_ns=started_ns,
        ended_ns=time.time_ns(),
        outcome="skipped",
        detail=Detail(reason="the execution before was still running"),
    )
    # Only the journal is written: the execution that runs loads it
    # when it ends, and this one must not wait for the database.
    books.note(execution_row(execution))
    return Executed(
        execution=execution, history=(execution,), alarms=(), raised=(), closed=(), code=0
    )


def _played(books: Books, opened: Execution, past: tuple[Execution, ...]) -> tuple[Outcome, Detail]:
    """Play the job and compare the result with the reference run, if there is one yet."""
    job, database, run = books.job, books.database, opened.run_id
    assert run is not None
    against = reference(past, job.reference)
    kept = Detail()
    try:
        known = {} if against is None else floors(past, against)
        has_floor = bool(known) or (against is not None and has_control(database, against))
        played = play(
            job,
            run=run,
            database=database,
            is_controlled=job.control and not has_floor,
            notice=lambda text: books.notice(in_fields(text)),
        )
        kept = Detail(usd=played.usd, reason=played.reason)
        if played.outcome in {"dead", "failed"}:
            return played.outcome, kept
        decided = headline(database, run, job=job) if len(played.arms) > 1 else None
        kept = replace(kept, facts=facts(database, run), headline=decided)
        if played.outcome == "void":
            return "void", kept
        if against is None:
            # One disturbed run as the reference would invalidate every later one.
            return _judged(kept, fault(database, run, job=job))
        changes, why = changes_since(database, run, against, arms=played.arms, job=job)
    except EndpointError as error:  # what it quotes of a server stays as it is
        return "dead", replace(kept, reason=error.message)
    except LaunchError as error:
        return "failed", replace(kept, reason=error.message)
    except EvidenceError as error:
        return "void", replace(kept, reason=error.message)
    except (AgentloadError, OSError) as error:
        return "failed", replace(kept, reason=in_fields(str(error)))
    compared = replace(kept, reference=against, changes=with_floors(changes, known))
    return _judged(compared, why)


def _judged(detail: Detail, why: str | None) -> tuple[Outcome, Detail]:
    """Return the outcome of figures: usable, or invalid where there is a reason *why*."""
    return "done" if why is None else "void", replace(detail, reason=why)
