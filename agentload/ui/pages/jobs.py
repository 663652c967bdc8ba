"""The jobs: latest result, open alarms, next due
time; for one job, its trends and level changes.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import duckdb
import msgspec

from agentload.errors import AgentloadError
from agentload.model.rows import AlarmRow, ExecutionRow, JobRow
from agentload.report import format as say
from agentload.report.charts.spec import Axis, Band, Plot, Rule, Series
from agentload.report.labels import slug
from agentload.report.parts import Tone
from agentload.store import tables
from agentload.ui.source import NotFoundError, Query
from agentload.watch import trends
from agentload.watch.alarms import Alarm, heard
from agentload.watch.history import Execution
from agentload.watch.job import METRICS
from agentload.watch.ledger import alarm, execution, executions
from agentload.watch.schedule import Schedule, between, check
from agentload.watch.trends import Identity, Point

EXECUTIONS: Final = 60
NEVER: Final = 1 << 63
GRACE_NS: Final = 3_600_000_000_000
"""How long after a firing a job may start before
it is overdue: staggers and machines that wake up.
"""
REACH: Final = 3.5
"""Percent that a trend shows on both sides at least: less than 3 counts for nothing."""
LEAST_RUNS: Final = 3
GLANCED: Final = 30
"""Executions in the sparkline next to a job's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An alarm and its job."""

    job: str
    alarm: Alarm
    chart: Plot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One job at a glance."""

    job: str
    schedule_text: str
    schedule: Schedule | None
    executions: int
    past: tuple[Execution, ...]
    """The latest executions, the last one last."""
    series: str | None
    """The series in the sparkline."""
    changes: tuple[float, ...]
    """Relative changes of that series from the reference, latest last."""
    worse: int
    changed: int
    """Open alarms for changed servers, which are neither better nor worse."""
    better: int
    muted: int
    """Open alarms that nobody wants to hear of today."""

    @property
    def latest(self) -> Execution | None:
        """Return the last execution; None where there is none."""
        return self.past[-1] if self.past else None

    def blind(self, running: Container[str | None], now_ns: int) -> str | None:
        """Say why nothing is known of now; None where the latest
        execution was judged, and is the one that the schedule asks for.
        """
        ran = [
            each
            for each in self.past
            if each.outcome != "skipped"
            and not (each.outcome == "running" and each.run_id in running)
        ]
        if not ran:
            return "has never run"
        latest = ran[-1]
        if latest.outcome not in {"done", "accepted"}:
            word = {
                "void": "is invalid",
                "missed": "was missed",
                "dead": "found a dead endpoint",
                "running": "was killed",
            }
            why = f": {latest.detail.reason}" if latest.detail.reason else ""
            return f"the latest run {word.get(latest.outcome, latest.outcome)}{why}"
        due = (
            between(self.schedule, self.past[-1].started_ns, now_ns - GRACE_NS)
            if self.schedule
            else ()
        )
        if due:
            return f"is overdue: {say.plural(len(due), 'firing')} without a run"
        if latest.detail.reference is None and latest.outcome == "done":
            return "has only its first run, which later ones are compared with"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What jobs come to, in a sentence."""

    text: str
    tone: Tone
    blind: tuple[tuple[str, str], ...]
    """Jobs of which nothing is known now, each with the reason."""


def standing(lines: Sequence[JobLine], running: Container[str | None], now_ns: int) -> Standing:
    """Sum jobs up: red where something got worse, green only where every job was judged lately."""
    blind = tuple(
        (line.job, why) for line in lines if (why := line.blind(running, now_ns)) is not None
    )
    worse, changed, muted = (
        sum(getattr(line, name) for line in lines) for name in ("worse", "changed", "muted")
    )
    seen = len(lines) - len(blind)
    if worse:
        return Standing(
            text=f"{'One thing' if worse == 1 else f'{worse} things'} got worse",
            tone="bad",
            blind=blind,
        )
    if blind:
        rest = f" · nothing got worse in the other{'s' if seen > 1 else ''}" if seen else ""
        text = (
            "The job could not be judged"
            if len(lines) == 1
            else f"{len(blind)} of {len(lines)} jobs could not be judged{rest}"
        )
        return Standing(text=text, tone="plain", blind=blind)
    if changed:
        return Standing(
            text=f"Nothing got worse, but {'a server' if changed == 1 else 'servers'} changed",
            tone="plain",
            blind=(),
        )
    if muted:
        return Standing(
            text=f"Nothing else got worse: {say.plural(muted, 'alarm')} muted",
            tone="plain",
            blind=(),
        )
    return Standing(text="Nothing got worse", tone="good", blind=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """All jobs of a database and their alarms: open ones first, then by time."""

    lines: tuple[JobLine, ...]
    alarms: tuple[Raised, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One series: its chart, and its level changes in words."""

    name: str
    chart: Plot
    levels: tuple[trends.Level, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The data of the page."""

    line: JobLine
    trends: tuple[Trend, ...]
    alarms: tuple[Raised, ...]
    identities: tuple[Identity, ...]
    executions: tuple[Execution, ...]
    """The executions shown, latest first."""


def jobs(connection: duckdb.DuckDBPyConnection, query: Query) -> Jobs:
    """Read all jobs, or the one of that name."""
    wanted = {"job": query.name} if query.name else {}
    past: dict[str, list[ExecutionRow]] = {}
    for row in tables.rows(connection, ExecutionRow, **wanted):
        if row.outcome != "muted":
            past.setdefault(row.job, []).append(row)
    found = alarms(connection, job=query.name)
    # A job without a row (not yet stored, or deleted) is
    # known by its executions, or by the jobs file alone.
    rows = {row.job: row for row in tables.rows(connection, JobRow, **wanted)}
    planned = {name for name in query.planned if query.name in ("", name)}
    names = sorted({*rows, *past, *planned})
    return Jobs(
        lines=tuple(
            _line(job, rows.get(job), past.get(job, []), found, query.today_ns) for job in names
        ),
        alarms=found,
    )


def alarms(connection: duckdb.DuckDBPyConnection, *, job: str = "") -> tuple[Raised, ...]:
    """Read the alarms of one job, or of all."""
    rows = tables.rows(connection, AlarmRow, **({"job": job} if job else {}))
    latest = sorted(rows, key=lambda row: (row.closed_ns is not None, -row.raised_ns))
    return tuple(Raised(job=row.job, alarm=alarm(row)) for row in latest)


def _line(
    job: str,
    row: JobRow | None,
    executions: list[ExecutionRow],
    found: tuple[Raised, ...],
    today_ns: int,
) -> JobLine:
    past = [execution(each) for each in executions[-GLANCED:]]
    open_ = [each.alarm for each in found if each.job == job and each.alarm.is_open]
    loud = heard(open_, today_ns)
    named = [change.series for each in past for change in each.detail.changes]
    # The first that changed, else the first.
    series = next(
        (each for each in named if any(alarm.metric == each for alarm in open_)),
        named[0] if named else None,
    )
    return JobLine(
        job=job,
        schedule_text=row.schedule if row else "",
        schedule=_schedule(row.spec if row else "{}"),
        executions=len(executions),
        past=tuple(past),
        series=series,
        changes=tuple(
            math.expm1(change.log_ratio)
            for each in past
            for change in each.detail.changes
            if change.series == series
        ),
        worse=sum(alarm.kind not in {"changed identity", "improvement"} for alarm in loud),
        changed=sum(alarm.kind == "changed identity" for alarm in loud),
        better=sum(alarm.kind == "improvement" for alarm in loud),
        muted=sum(alarm.kind != "improvement" for alarm in open_)
        - sum(alarm.kind != "improvement" for alarm in loud),
    )


def _schedule(spec: str) -> Schedule | None:
    said = json.loads(spec).get("schedule")
    try:
        found = msgspec.convert(said, Schedule)
        check(found, where="")
    except (msgspec.ValidationError, AgentloadError):  # of another version
        return None
    return found


def job(connection: duckdb.DuckDBPyConnection, query: Query) -> Job:
    """Read a job; raise `NotFoundError` if there is none of that name."""
    found = jobs(connection, query)
    if not found.lines:
        raise NotFoundError(
            f"no job '{query.name}' in this database", hint=f"agentload watch run {query.name}"
        )
    history = trends_of(connection, query.name, found.alarms)
    return Job(
        line=found.lines[0],
        trends=tuple(trend(each, job=query.name) for each in history.series),
        alarms=found.alarms,
        identities=history.identities[::-1],
        executions=history.executions[::-1][:EXECUTIONS],
    )


def trends_of(
    connection: duckdb.DuckDBPyConnection, name: str, alarms: tuple[Raised, ...]
) -> trends.Trends:
    """Read a job's trends; *alarms* may include other jobs'."""
    return trends.trends(
        name, executions(connection, name), tuple(each.alarm for each in alarms if each.job == name)
    )


def trend(series: trends.Series, *, job: str) -> Trend:
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
    reach = max(REACH, *(1.1 * abs(end) for end in (*values.lows, *values.highs)))
    means, bands = tuple(_means(series)), tuple(_bands(series))
    drawn = (
        (means, "Horizontal lines: means."),
        (series.change_points, "Dashed line: level change."),
        (bands, "Band: alarm."),
    )
    told = (
        "Change from the first reference run; higher is slower.",
        "Bars are each run's own 95% interval; runs vary by more than that.",
    )
    chart = Plot(
        name=slug(f"{job}-{series.name}"),
        title=f"{METRICS[series.metric].capitalize()} of {series.arm}",
        caption=" ".join((*told, *(words for each, words in drawn if each))),
        x=Axis(label=f"run, {_day(points[0])} to {_day(points[-1])}", quantity="count", whole=True),
        y=Axis(label="change, %", quantity="percent", low=-reach, high=reach),
        series=(values, *means),
        bands=bands,
        rules=tuple(
            Rule(axis="x", at=level.point + 0.5, label=_percent(level.change))
            for level in series.change_points
        ),
    )
    return Trend(name=series.name, chart=chart, levels=series.change_points[::-1])


def _means(series: trends.Series) -> Iterator[Series]:
    """Draw the mean of each stretch as its own line; of fewer than three runs it says nothing."""
    edges = [0, *(level.point for level in series.change_points), len(series.points)]
    for low, high in pairwise(edges):
        if high - low < LEAST_RUNS:
            continue
        mean = sum(point.value for point in series.points[low:high]) / (high - low)
        ends = (low + 0.5, high + 0.5)
        tip = f"mean of runs {low + 1} to {high}: {_percent(mean)}"
        yield Series(
            label="mean",
            slot=None,
            mark="line",
            xs=ends,
            ys=(100 * mean, 100 * mean),
            tips=(tip, tip),
        )


def _bands(series: trends.Series) -> Iterator[Band]:
    """Shade from the run that raised an alarm to the one that closed it."""
    for each in series.alarms:
        ends = (each.raised_ns, each.closed_ns or NEVER)
        raised, closed = (
            bisect_right(series.points, at, key=lambda point: point.at_ns) for at in ends
        )
        if raised:
            high = len(series.points) + 0.5 if each.is_open else float(closed)
            yield Band(
                axis="x",
                low=float(raised),
                high=high,
                label="",
                slot=1 if each.kind == "regression" else 5,
            )


def _day(point: Point) -> str:
    return f"{datetime.fromtimestamp(point.at_ns / 1e9, UTC):%Y-%m-%d}"


def _tip(point: Point) -> str:
    ends = (
        ""
        if point.low is None or point.high is None
        else f" [{say.signed(100 * point.low, 1)}, {say.signed(100 * point.high, 1)}]"
    )
    what = f"{_percent(point.value)}{ends}" if point.run_id != point.reference else "the reference"
    return f"{point.run_id}: {what}"


def _percent(share: float) -> str:
    return f"{say.signed(100 * share, 1)}%"
