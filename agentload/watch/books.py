"""Read and write the books of a job: its journal, its history and its alarms.

Only the process that holds the job's lock does so. Rows go into the journal first, which no crash
loses, and into the database as soon as nobody else holds that.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.errors import AgentloadError, StoreError
from agentload.model.record import Record
from agentload.model.rows import Row, RunRow
from agentload.store import tables
from agentload.store.database import writing
from agentload.store.places import journal_folder
from agentload.store.runs import delete
from agentload.watch import ledger
from agentload.watch.alarms import Alarm, alarms_of, exit_code
from agentload.watch.history import Execution, expendable, reference
from agentload.watch.job import Job

KILLED: Final = "the process was killed"


class Executed(Record):
    """Report what one execution came to."""

    execution: Execution
    history: tuple[Execution, ...]
    alarms: tuple[Alarm, ...]
    raised: tuple[Alarm, ...]
    closed: tuple[Alarm, ...]
    code: int


class Books(Record):
    """Keep what is written down of a job, while this process holds its lock."""

    job: Job
    database: Path
    notice: Callable[[str], None]

    def note(self, *rows: Row) -> None:
        """Write rows to the journal."""
        ledger.note(self.database, self.job.name, rows)

    def load(self) -> None:
        """Load the journal into the database; notice why that has to wait, if it has."""
        why = ledger.bring_in(self.database, self.job.name)
        if why is not None:
            self.notice(f"not loaded yet: {why}")

    def history(self) -> tuple[Execution, ...]:
        """Read the history; an execution still `running` while the lock is ours was killed."""
        past = ledger.history(self.database, self.job.name)
        killed = [_ended(each) for each in past if each.outcome == "running"]
        if killed:
            self.note(*map(ledger.execution_row, killed))
        return tuple(map(_ended, past))

    def conclude(self, ended: Execution, past: tuple[Execution, ...]) -> Executed:
        """Write down what became of an execution and its alarms, and delete old calls."""
        self.note(ledger.execution_row(ended))
        self.load()
        stored = self._stored_alarms(past)
        whole = (*past, ended)
        found = alarms_of(self.job, whole)
        rows = ledger.alarm_rows(self.job.name, found, stored, at_ns=time.time_ns())
        if rows:
            self.note(*rows)
        self.load()
        try:
            self._forget(whole)
        except StoreError as error:
            self.notice(f"old runs are kept until the next execution: {error.message}")
        known = {each.key for each in stored}
        return Executed(
            execution=ended,
            history=whole,
            alarms=found,
            raised=tuple(each for each in found if each.key not in known),
            closed=tuple(each for each in found if not each.is_open and each not in stored),
            code=exit_code(ended, found),
        )

    def _stored_alarms(self, past: tuple[Execution, ...]) -> tuple[Alarm, ...]:
        """Read the alarms that people know of.

        While the database cannot be read, they are what followed from the history before.
        """
        try:
            return ledger.stored_alarms(self.database, self.job.name)
        except StoreError:
            # A missed firing at the end was written by this execution: nobody knows of it.
            is_new = past and past[-1].outcome == "missed"
            return alarms_of(self.job, past[:-1] if is_new else past)

    def _forget(self, past: tuple[Execution, ...]) -> None:
        """Delete the calls of runs that are older than the job keeps; skip runs gone already."""
        old = expendable(past, self.job.keep_runs, reference(past, self.job.reference))
        if not old:
            return
        with writing(self.database, patience_s=ledger.DATABASE_S) as connection:
            known = {row.run_id for row in tables.rows(connection, RunRow)}
            for run in sorted(known & set(old)):
                delete(connection, run)
        for run in old:
            shutil.rmtree(journal_folder(self.database, run), ignore_errors=True)


def _ended(each: Execution) -> Execution:
    """Return an execution as it ended: one that still runs was killed."""
    if each.outcome != "running":
        return each
    return replace(each, outcome="failed", detail=replace(each.detail, reason=KILLED))


@contextmanager
def free_books(
    job: Job, database: Path, notice: Callable[[str], None], *, verb: str
) -> Iterator[Books]:
    """Open the books of a job that is not being executed.

    Raises `AgentloadError` where it is, which says to *verb* once that has ended.
    """
    with ledger.lock(database, job.name) as is_mine:
        if not is_mine:
            raise AgentloadError(
                f"job '{job.name}' is being executed",
                hint=f"{verb} once it has ended: agentload watch status",
            )
        books = Books(job=job, database=database, notice=notice)
        books.load()
        yield books
