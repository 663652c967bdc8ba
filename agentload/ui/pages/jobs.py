"""The jobs: what each came to last, which alarms hold, when it is due again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

import duckdb
import msgspec

from agentload.errors import AgentloadError
from agentload.model.rows import AlarmRow, ExecutionRow, JobRow
from agentload.report.charts.spec import Plot
from agentload.store import tables
from agentload.ui.asked import Asked
from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution
from agentload.watch.rows import alarm, execution
from agentload.watch.schedule import Schedule, check

SHOWN: Final = 30
"""Executions whose changes are drawn beside a job's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An alarm and whose it is."""

    job: str
    alarm: Alarm
    chart: Plot | None = None
    """Of the series that it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One job at a glance."""

    job: str
    told: str
    """Its schedule as it was written."""
    schedule: Schedule | None
    executions: int
    latest: Execution | None
    series: str | None
    """The one that is drawn."""
    changes: tuple[float, ...]
    """Of that series against the reference, the latest last, as shares."""
    worse: int
    """Open alarms of what got worse."""
    changed: int
    """Of servers that are not what they were: that alone is neither."""
    better: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """All jobs of a database, and all their alarms: the open ones first, then by when they were raised."""

    lines: tuple[Line, ...]
    alarms: tuple[Raised, ...]


def read(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Jobs:
    """Read all jobs, or with a name that one alone."""
    wanted = {"job": asked.name} if asked.name else {}
    past: dict[str, list[ExecutionRow]] = {}
    for row in tables.rows(connection, ExecutionRow, **wanted):
        past.setdefault(row.job, []).append(row)
    found = alarms(connection, job=asked.name)
    # A job whose row is not there yet, or no more, is known by its executions.
    rows = {row.job: row for row in tables.rows(connection, JobRow, **wanted)}
    return Jobs(lines=tuple(_line(job, rows.get(job), past.get(job, []), found) for job in sorted({*rows, *past})), alarms=found)


def alarms(connection: duckdb.DuckDBPyConnection, *, job: str = "") -> tuple[Raised, ...]:
    """Read the alarms of one job, or of all."""
    rows = tables.rows(connection, AlarmRow, **({"job": job} if job else {}))
    latest = sorted(rows, key=lambda row: (row.closed_ns is not None, -row.raised_ns))
    return tuple(Raised(job=row.job, alarm=alarm(row)) for row in latest)


def _line(job: str, row: JobRow | None, executions: list[ExecutionRow], found: tuple[Raised, ...]) -> Line:
    past = [execution(each) for each in executions[-SHOWN:]]
    open_ = [each.alarm for each in found if each.job == job and each.alarm.is_open]
    named = [change.series for each in past for change in each.detail.changes]
    # The first that changed, else the first: what a reader looks for.
    series = next((each for each in named if any(alarm.metric == each for alarm in open_)), named[0] if named else None)
    return Line(
        job=job,
        told=row.schedule if row else "",
        schedule=_schedule(row.spec if row else "{}"),
        executions=len(executions),
        latest=past[-1] if past else None,
        series=series,
        changes=tuple(math.expm1(change.log_ratio) for each in past for change in each.detail.changes if change.series == series),
        worse=sum(alarm.kind not in {"changed identity", "improvement"} for alarm in open_),
        changed=sum(alarm.kind == "changed identity" for alarm in open_),
        better=sum(alarm.kind == "improvement" for alarm in open_),
    )


def _schedule(spec: str) -> Schedule | None:
    said = json.loads(spec).get("schedule")
    try:
        found = msgspec.convert(said, Schedule)
        check(found, where="")
    except (msgspec.ValidationError, AgentloadError):  # of another version
        return None
    return found
