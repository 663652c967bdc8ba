"""The jobs: what each came to last, which alarms hold, when it is due again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import msgspec

from agentload.errors import AgentloadError
from agentload.report.charts.spec import Plot
from agentload.ui.asked import Asked
from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution
from agentload.watch.rows import ALARM, EXECUTION, alarm, execution
from agentload.watch.schedule import Schedule, check

SHOWN: Final = 30
"""Executions whose changes are drawn beside a job's name."""

# A job whose row is not there yet, or no more, is known by its executions.
_JOBS: Final = """
SELECT job, schedule, spec, coalesce(executions, 0) FROM jobs
FULL JOIN (SELECT job, count(*) AS executions FROM executions GROUP BY job) USING (job) ORDER BY job
"""
_LATEST: Final = f"""
SELECT {EXECUTION} FROM executions
QUALIFY row_number() OVER (PARTITION BY job ORDER BY started_ns DESC) <= $shown ORDER BY job, started_ns
"""  # noqa: S608  # our own columns
_ALARMS: Final = f"""
SELECT {ALARM} FROM alarms
WHERE $job = '' OR job = $job ORDER BY closed_ns IS NOT NULL, raised_ns DESC, kind, metric
"""  # noqa: S608  # our own columns


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
    past: dict[str, list[Execution]] = {}
    for columns in connection.execute(_LATEST, {"shown": SHOWN}).fetchall():
        each = execution(columns)
        past.setdefault(each.job, []).append(each)
    found = alarms(connection, job=asked.name)
    rows = [row for row in connection.execute(_JOBS).fetchall() if asked.name in ("", row[0])]
    return Jobs(lines=tuple(_line(row, past.get(row[0], []), found) for row in rows), alarms=found)


def alarms(connection: duckdb.DuckDBPyConnection, *, job: str = "") -> tuple[Raised, ...]:
    """Read the alarms of one job, or of all."""
    return tuple(Raised(job=columns[0], alarm=alarm(columns)) for columns in connection.execute(_ALARMS, {"job": job}).fetchall())


def _line(row: tuple[Any, ...], past: list[Execution], found: tuple[Raised, ...]) -> Line:
    job, told, spec, executions = row
    open_ = [each.alarm for each in found if each.job == job and each.alarm.is_open]
    named = [change.series for each in past for change in each.detail.changes]
    # The first that changed, else the first: what a reader looks for.
    series = next((each for each in named if any(alarm.metric == each for alarm in open_)), named[0] if named else None)
    return Line(
        job=job,
        told=told or "",
        schedule=_schedule(spec),
        executions=executions,
        latest=past[-1] if past else None,
        series=series,
        changes=tuple(math.expm1(change.log_ratio) for each in past for change in each.detail.changes if change.series == series),
        worse=sum(alarm.kind not in {"changed identity", "improvement"} for alarm in open_),
        changed=sum(alarm.kind == "changed identity" for alarm in open_),
        better=sum(alarm.kind == "improvement" for alarm in open_),
    )


def _schedule(spec: str | None) -> Schedule | None:
    said = json.loads(spec or "{}").get("schedule")
    try:
        found = msgspec.convert(said, Schedule)
        check(found, where="")
    except (msgspec.ValidationError, AgentloadError):  # of another version
        return None
    return found
