"""Keep a job's executions and alarms: journal first, as everything, then the database; and read them back.

A journal is of one version of the rows; another version writes beside it, so that an upgrade does not end a job's history.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from agentload.errors import StoreError
from agentload.model.rows import AlarmRow, ExecutionRow, JobRow, Row
from agentload.store import codec
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.watch.alarms import Alarm, Kind
from agentload.watch.history import Detail, Execution, Outcome
from agentload.watch.job import Job

PATIENCE_S: Final = 10.0  # another process of this job writes for milliseconds
DATABASE_S: Final = 25.0
"""How long an execution waits for whoever holds the database: four times in all, within the two minutes that schedulers grant it."""


def journal(database: Path, job: str) -> Path:
    """Return where this version writes what becomes of a job."""
    return database.with_suffix(".journal") / f"watch-{job}.{crc32(codec.header()):08x}.journal"


def journals(database: Path, job: str) -> tuple[Path, ...]:
    """List a job's journals, of all versions."""
    return tuple(sorted(database.with_suffix(".journal").glob(f"watch-{job}.*.journal")))


def note(database: Path, job: str, rows: Iterable[Row]) -> None:
    """Write rows to the job's journal, where no crash loses them."""
    path, until_s = journal(database, job), time.monotonic() + PATIENCE_S
    while True:
        try:
            with Writer(path) as writer:
                for row in rows:
                    writer.append(row)
            return
        except StoreError:
            if time.monotonic() > until_s:
                raise
            time.sleep(random.uniform(0.02, 0.1))


def bring_in(database: Path, job: str) -> str | None:
    """Load the job's journals into the database; return why that has to wait, if it has."""
    try:
        load(journals(database, job), database, patience_s=DATABASE_S)
    except StoreError as error:
        return error.message
    return None


def history(database: Path, job: str) -> tuple[Execution, ...]:
    """Read a job's executions in order; none when there is no database yet."""
    query = "SELECT started_ns, ended_ns, due_ns, outcome, run_id, detail FROM executions WHERE job = ? ORDER BY started_ns"
    return tuple(
        Execution(
            job=job,
            started_ns=started_ns,
            ended_ns=ended_ns,
            due_ns=due_ns,
            outcome=_outcome(outcome),
            run_id=run_id,
            detail=msgspec.json.decode(detail, type=Detail),
        )
        for started_ns, ended_ns, due_ns, outcome, run_id, detail in _rows(database, query, [job])
    )


def stored_alarms(database: Path, job: str) -> tuple[Alarm, ...]:
    """Read a job's alarms as they were stored."""
    query = "SELECT kind, metric, raised_ns, closed_ns, run_id, detail FROM alarms WHERE job = ? ORDER BY raised_ns, kind, metric"
    return tuple(
        Alarm(kind=_kind(kind), metric=metric, raised_ns=raised_ns, closed_ns=closed_ns, run_id=run_id, **_told(detail))
        for kind, metric, raised_ns, closed_ns, run_id, detail in _rows(database, query, [job])
    )


def execution_row(each: Execution) -> ExecutionRow:
    """Turn an execution into its row."""
    return ExecutionRow(
        job=each.job,
        started_ns=each.started_ns,
        ended_ns=each.ended_ns,
        due_ns=each.due_ns,
        outcome=each.outcome,
        run_id=each.run_id,
        detail=msgspec.json.encode(each.detail).decode(),
    )


def job_row(job: Job, *, at_ns: int) -> JobRow:
    """Turn a job into its row."""
    return JobRow(job=job.name, added_ns=at_ns, schedule=f"{job.schedule.cron} ({job.schedule.time_zone})", spec=job.spec)


def alarm_rows(job: str, found: Sequence[Alarm], stored: Sequence[Alarm], *, at_ns: int) -> tuple[AlarmRow, ...]:
    """Return the rows that differ from what is stored; an open alarm that no longer follows from the history is closed."""
    known = {_key(each) for each in found}
    gone = [each for each in stored if each.is_open and _key(each) not in known]
    fresh = [each for each in found if each not in stored]
    return (*(_row(job, each, each.closed_ns) for each in fresh), *(_row(job, each, at_ns) for each in gone))


def _row(job: str, each: Alarm, closed_ns: int | None) -> AlarmRow:
    detail = msgspec.json.encode({"message": each.message, "suspects": each.suspects}).decode()
    return AlarmRow(
        job=job, kind=each.kind, metric=each.metric, raised_ns=each.raised_ns, closed_ns=closed_ns, run_id=each.run_id, detail=detail
    )


def _key(each: Alarm) -> tuple[Kind, str | None, int]:
    return (each.kind, each.metric, each.raised_ns)


def _rows(database: Path, query: str, values: list[object]) -> list[tuple[Any, ...]]:
    if not database.is_file():
        return []
    with reading(database, patience_s=DATABASE_S) as connection:
        return connection.execute(query, values).fetchall()


def _outcome(text: str) -> Outcome:
    found: Outcome = msgspec.convert(text, Outcome)
    return found


def _kind(text: str) -> Kind:
    found: Kind = msgspec.convert(text, Kind)
    return found


def _told(detail: str) -> dict[str, Any]:
    said = msgspec.json.decode(detail)
    return {"message": said["message"], "suspects": tuple(said["suspects"])}
