"""One job: its trends with their changes of level, its alarms, and what became of each firing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import duckdb

from agentload.report import format as say
from agentload.report.charts.spec import Axis, Band, Plot, Rule, Series
from agentload.report.labels import slug
from agentload.ui.asked import Asked, NotFoundError
from agentload.ui.pages import jobs
from agentload.ui.words import METRICS
from agentload.watch import trends
from agentload.watch.history import Execution
from agentload.watch.rows import history
from agentload.watch.trends import Identity, Point

SHOWN: Final = 60
NEVER: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One series: its picture, and each change of level in words."""

    name: str
    chart: Plot
    levels: tuple[trends.Level, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the page shows."""

    line: jobs.Line
    trends: tuple[Trend, ...]
    alarms: tuple[jobs.Raised, ...]
    identities: tuple[Identity, ...]
    """The latest first."""
    executions: tuple[Execution, ...]
    """The latest first, so many as are shown."""


def read(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Job:
    """Read a job; raise `NotFoundError` if the database has none of that name."""
    found = jobs.read(connection, asked)
    if not found.lines:
        raise NotFoundError(f"no job '{asked.name}' was executed", hint=f"agentload watch run {asked.name}")
    told = told_of(connection, asked.name, found.alarms)
    return Job(
        line=found.lines[0],
        trends=tuple(drawn(each, job=asked.name) for each in told.series),
        alarms=found.alarms,
        identities=told.identities[::-1],
        executions=told.executions[::-1][:SHOWN],
    )


def told_of(connection: duckdb.DuckDBPyConnection, name: str, alarms: tuple[jobs.Raised, ...]) -> trends.Trends:
    """Read a job's trends; *alarms* may be of other jobs too."""
    return trends.trends(name, history(connection, name), tuple(each.alarm for each in alarms if each.job == name))


def drawn(series: trends.Series, *, job: str) -> Trend:
    """Draw a series."""
    points = series.points
    values = Series(
        label=series.name,
        slot=2,
        mark="points",
        xs=tuple(float(number) for number in range(1, len(points) + 1)),
        ys=tuple(100 * point.value for point in points),
        lows=tuple(100 * (point.value if point.low is None else point.low) for point in points),
        highs=tuple(100 * (point.value if point.high is None else point.high) for point in points),
        tips=tuple(_tip(point) for point in points),
    )
    chart = Plot(
        name=slug(f"{job}-{series.name}"),
        title=f"{METRICS[series.metric].capitalize()} of {series.arm}",
        caption="Change against the first reference run: higher is slower. Bars are each run's own 95 % interval; runs differ by more. "
        "A dashed line is a change of level, the lines between are means, a band is an alarm while it holds.",
        x=Axis(label=f"run, {_day(points[0])} to {_day(points[-1])}", quantity="count"),
        y=Axis(label="change, %", quantity="percent"),
        series=(values, *_means(series)),
        bands=tuple(_bands(series)),
        rules=tuple(Rule(axis="x", at=level.point + 0.5, label=_percent(level.change)) for level in series.change_points),
    )
    return Trend(name=series.name, chart=chart, levels=series.change_points[::-1])


def _means(series: trends.Series) -> Iterator[Series]:
    """Draw each stretch's mean as a line of its own."""
    edges = [0, *(level.point for level in series.change_points), len(series.points)]
    for low, high in pairwise(edges):
        mean = sum(point.value for point in series.points[low:high]) / (high - low)
        ends = (low + 0.5, high + 0.5)
        tip = f"mean of runs {low + 1} to {high}: {_percent(mean)}"
        yield Series(label="mean", slot=None, mark="line", xs=ends, ys=(100 * mean, 100 * mean), tips=(tip, tip))


def _bands(series: trends.Series) -> Iterator[Band]:
    """Shade from the run that raised an alarm to the one that closed it."""
    for alarm in series.alarms:
        ends = (alarm.raised_ns, alarm.closed_ns or NEVER)
        raised, closed = (bisect_right(series.points, at, key=lambda point: point.at_ns) for at in ends)
        if raised:
            high = len(series.points) + 0.5 if alarm.is_open else float(closed)
            yield Band(axis="x", low=float(raised), high=high, label="", slot=1 if alarm.kind == "regression" else 5)


def _day(point: Point) -> str:
    return f"{datetime.fromtimestamp(point.at_ns / 1e9, UTC):%Y-%m-%d}"


def _tip(point: Point) -> str:
    ends = "" if point.low is None or point.high is None else f" [{say.signed(100 * point.low, 1)}, {say.signed(100 * point.high, 1)}]"
    what = f"{_percent(point.value)}{ends}" if point.run_id != point.reference else "the reference"
    return f"{point.run_id}: {what}"


def _percent(share: float) -> str:
    return f"{say.signed(100 * share, 1)} %"
