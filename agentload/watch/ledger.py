"""Keep a job's executions and alarms: journal first, as everything, then the database; and read them back.

A journal is of one version of the rows; another version writes beside it, so that an upgrade does not end a job's history.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from zlib import crc32

from agentload.errors import StoreError
from agentload.model.rows import Row
from agentload.store import codec
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.watch import rows
from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution

PATIENCE_S: Final = 10.0  # another process of this job writes for milliseconds
DATABASE_S: Final = 25.0
"""How long an execution waits for whoever holds the database: four times in all, within the two minutes that schedulers grant it."""


def journal(database: Path, job: str) -> Path:
    """Return where this version writes what becomes of a job."""
    return database.with_suffix(".journal") / f"watch-{job}.{crc32(codec.header()):08x}.journal"


def journals(database: Path, job: str) -> tuple[Path, ...]:
    """List a job's journals, of all versions."""
    return tuple(sorted(database.with_suffix(".journal").glob(f"watch-{job}.*.journal")))


def note(database: Path, job: str, told: Iterable[Row]) -> None:
    """Write rows to the job's journal, where no crash loses them."""
    path, until_s = journal(database, job), time.monotonic() + PATIENCE_S
    while True:
        try:
            with Writer(path) as writer:
                for row in told:
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
    if not database.is_file():
        return ()
    with reading(database, patience_s=DATABASE_S) as connection:
        return rows.history(connection, job)


def stored_alarms(database: Path, job: str) -> tuple[Alarm, ...]:
    """Read a job's alarms as they were stored."""
    if not database.is_file():
        return ()
    query = f"SELECT {rows.ALARM} FROM alarms WHERE job = ? ORDER BY raised_ns, kind, metric"  # noqa: S608  # our own columns
    with reading(database, patience_s=DATABASE_S) as connection:
        return tuple(rows.alarm(columns) for columns in connection.execute(query, [job]).fetchall())
