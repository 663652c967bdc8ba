"""The first page: what got worse, what was decided, how the jobs are, what was run; what is running comes from the journals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import duckdb

from agentload.ui.asked import Asked
from agentload.ui.pages import decisions, job, jobs, runs

LATEST: Final = 6
DRAWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the page shows."""

    worse: tuple[jobs.Raised, ...]
    """Open alarms, of what changed too; the improvements left out."""
    better: tuple[jobs.Raised, ...]
    jobs: tuple[jobs.Line, ...]
    decisions: decisions.Decisions
    runs: runs.Runs
    unloaded: tuple[str, ...]
    """Runs that are in their journals only."""


def read(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Overview:
    """Read the latest of each kind."""
    found = jobs.read(connection, asked)
    held = _charted(connection, [each for each in found.alarms if each.alarm.is_open])
    return Overview(
        worse=tuple(each for each in held if each.alarm.kind != "improvement"),
        better=tuple(each for each in held if each.alarm.kind == "improvement"),
        jobs=found.lines,
        decisions=decisions.read(connection, asked, size=LATEST),
        runs=runs.read(connection, asked, size=LATEST),
        unloaded=_unloaded(connection, asked.journalled),
    )


def _unloaded(connection: duckdb.DuckDBPyConnection, journalled: tuple[str, ...]) -> tuple[str, ...]:
    loaded = connection.execute("SELECT run_id FROM listed WHERE list_contains($names, run_id)", {"names": list(journalled)}).fetchall()
    return tuple(sorted({*journalled} - {name for (name,) in loaded}, reverse=True))


def _charted(connection: duckdb.DuckDBPyConnection, held: list[jobs.Raised]) -> list[jobs.Raised]:
    """Put the first few pictures beside their alarms."""
    shown = [each for each in held if each.alarm.metric is not None][:DRAWN]
    series = {
        (name, each.name): each
        for name in dict.fromkeys(each.job for each in shown)
        for each in job.told_of(connection, name, tuple(held)).series
    }
    charts = {key: job.drawn(series[key], job=key[0]).chart for each in shown if (key := (each.job, each.alarm.metric or "")) in series}
    return [replace(each, chart=charts.get((each.job, each.alarm.metric or ""))) for each in held]
