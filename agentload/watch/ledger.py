"""Keep a job's executions and alarms, and read them back: one execution at a time.

Rows go to the journal first, as everywhere, then to the database. A journal holds rows of one
version; another version writes a journal of its own, so that an upgrade does not end a job's
history.
"""

import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Final
from zlib import crc32

import duckdb
import msgspec

from agentload.errors import StoreError
from agentload.model.rows import AlarmRow, ExecutionRow, JobRow, Row
from agentload.store import codec, tables
from agentload.store.database import AbsentError, reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.ownership import open_locked, refuse_foreign
from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution
from agentload.watch.job import Job

PATIENCE_S: Final = 10.0  # another process of this job writes for milliseconds
DATABASE_S: Final = 25.0
"""Seconds that an execution waits for another holder of the database.

It waits four times in all, within the two minutes that schedulers grant it.
"""


def journal(database: Path, job: str) -> Path:
    """Return the journal of a job for this version of the rows."""
    return database.with_suffix(".journal") / f"watch-{job}.{crc32(codec.header()):08x}.journal"


def journals(database: Path, job: str) -> tuple[Path, ...]:
    """List a job's journals, of all versions."""
    return tuple(sorted(database.with_suffix(".journal").glob(f"watch-{job}.*.journal")))


def note(database: Path, job: str, told: Iterable[Row]) -> None:
    """Write rows to the job's journal, where no crash loses them."""
    path = journal(database, job)
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Writer(path, ahead=0) as writer:
                for row in told:
                    writer.append(row)
            return
        except StoreError:
            if time.monotonic() > until_s:
                raise
            time.sleep(random.uniform(0.02, 0.1))


def bring_in(database: Path, job: str) -> str | None:
    """Load the job's journals into the database; return why that has to wait, or None."""
    try:
        load(journals(database, job), database, patience_s=DATABASE_S)
    except StoreError as error:
        return error.message
    return None


def executions(connection: duckdb.DuckDBPyConnection, job: str) -> tuple[Execution, ...]:
    """Read a job's executions in order."""
    return tuple(map(execution, tables.rows(connection, ExecutionRow, job=job)))


def execution(row: ExecutionRow) -> Execution:
    """Turn a row of `executions` into an execution."""
    return msgspec.convert({**asdict(row), "detail": msgspec.json.decode(row.detail)}, Execution)


def alarm(row: AlarmRow) -> Alarm:
    """Turn a row of `alarms` into an alarm."""
    return msgspec.convert({**asdict(row), **msgspec.json.decode(row.detail)}, Alarm)


def execution_row(each: Execution) -> ExecutionRow:
    """Turn an execution into its row."""
    columns = {field.name: getattr(each, field.name) for field in fields(ExecutionRow)}
    columns["detail"] = msgspec.json.encode(each.detail).decode()
    return ExecutionRow(**columns)


def job_row(job: Job, *, at_ns: int) -> JobRow:
    """Turn a job into its row."""
    return JobRow(
        job=job.name,
        added_ns=at_ns,
        schedule=f"{job.schedule.cron} ({job.schedule.time_zone})",
        spec=job.spec,
    )


def alarm_rows(
    job: str, found: Sequence[Alarm], stored: Sequence[Alarm], *, at_ns: int
) -> tuple[AlarmRow, ...]:
    """Return the rows of alarms that differ from what is stored.

    An open alarm that no longer follows from the history is closed.
    """
    known = {each.key for each in found}
    gone = [each for each in stored if each.is_open and each.key not in known]
    closed = [replace(each, closed_ns=at_ns) for each in gone]
    fresh = [each for each in found if each not in stored]
    return tuple(_alarm_row(job, each) for each in (*fresh, *closed))


def _alarm_row(job: str, each: Alarm) -> AlarmRow:
    """Turn an alarm into its row; what has no column of its own is in `detail`."""
    rest = {"message": each.message, "suspects": each.suspects, "muted_ns": each.muted_ns}
    return AlarmRow(
        job=job,
        kind=each.kind,
        metric=each.metric,
        raised_ns=each.raised_ns,
        closed_ns=each.closed_ns,
        run_id=each.run_id,
        detail=msgspec.json.encode(rest).decode(),
    )


def history(database: Path, job: str) -> tuple[Execution, ...]:
    """Read a job's executions in order; none when there is no database yet."""
    with suppress(AbsentError), reading(database, patience_s=DATABASE_S) as connection:
        return executions(connection, job)
    return ()


def stored_alarms(database: Path, job: str) -> tuple[Alarm, ...]:
    """Read a job's alarms as they were stored."""
    with suppress(AbsentError), reading(database, patience_s=DATABASE_S) as connection:
        return tuple(map(alarm, tables.rows(connection, AlarmRow, job=job)))
    return ()


def lock_path(database: Path, job: str) -> Path:
    """Return the file that an execution locks."""
    return database.with_suffix(".journal") / f"watch-{job}.lock"


@contextmanager
def lock(database: Path, job: str) -> Iterator[bool]:
    """Hold the job's lock; yield False when another execution holds it."""
    path = lock_path(database, job)
    for place in (path.parent, path):
        refuse_foreign(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = open_locked(path)
    if fd is None:
        yield False
        return
    try:
        yield True
    finally:
        os.close(fd)
