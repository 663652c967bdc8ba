"""Turn executions, alarms and jobs into rows, and rows of the database back into them."""

from collections.abc import Sequence

import duckdb
import msgspec

from agentload.model.rows import AlarmRow, ExecutionRow, JobRow
from agentload.store import tables
from agentload.watch.alarms import Alarm, Kind
from agentload.watch.history import Detail, Execution, Outcome
from agentload.watch.job import Job


class _Told(msgspec.Struct):
    """What an alarm keeps beside its row's columns."""

    message: str = ""
    suspects: tuple[str, ...] = ()


def history(connection: duckdb.DuckDBPyConnection, job: str) -> tuple[Execution, ...]:
    """Read a job's executions in order."""
    return tuple(map(execution, tables.rows(connection, ExecutionRow, job=job)))


def execution(row: ExecutionRow) -> Execution:
    """Turn a row of `executions` into an execution."""
    return Execution(
        job=row.job,
        started_ns=row.started_ns,
        ended_ns=row.ended_ns,
        due_ns=row.due_ns,
        outcome=_outcome(row.outcome),
        run_id=row.run_id,
        detail=msgspec.json.decode(row.detail, type=Detail),
    )


def alarm(row: AlarmRow) -> Alarm:
    """Turn a row of `alarms` into an alarm."""
    told = msgspec.json.decode(row.detail, type=_Told)
    return Alarm(
        kind=_kind(row.kind),
        metric=row.metric,
        raised_ns=row.raised_ns,
        closed_ns=row.closed_ns,
        run_id=row.run_id,
        message=told.message,
        suspects=told.suspects,
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
    return (*(_alarm_row(job, each, each.closed_ns) for each in fresh), *(_alarm_row(job, each, at_ns) for each in gone))


def _alarm_row(job: str, each: Alarm, closed_ns: int | None) -> AlarmRow:
    detail = msgspec.json.encode(_Told(message=each.message, suspects=each.suspects)).decode()
    return AlarmRow(
        job=job, kind=each.kind, metric=each.metric, raised_ns=each.raised_ns, closed_ns=closed_ns, run_id=each.run_id, detail=detail
    )


def _key(each: Alarm) -> tuple[Kind, str | None, int]:
    return (each.kind, each.metric, each.raised_ns)


def _outcome(text: str) -> Outcome:
    found: Outcome = msgspec.convert(text, Outcome)
    return found


def _kind(text: str) -> Kind:
    found: Kind = msgspec.convert(text, Kind)
    return found
