"""Read the jobs: latest result, open alarms, next due time.

For one job, its trends and level changes.
"""

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, pairwise
from statistics import fmean
from typing import Final

import duckdb
import msgspec

from agentload.errors import AgentloadError
from agentload.model.record import Record
from agentload.model.rows import AlarmRow, ExecutionRow, JobRow
from agentload.report import format as say
from agentload.report.charts.spec import Band, ChartAxis, Plot, RuleLine, Series
from agentload.report.labels import slug
from agentload.report.parts import Tone
from agentload.store import tables
from agentload.ui.source import NotFoundError, Query
from agentload.watch import trends
from agentload.watch.alarms import Alarm, loud_alarms
from agentload.watch.history import Execution
from agentload.watch.job import METRICS
from agentload.watch.ledger import alarm, execution, executions
from agentload.watch.schedule import Schedule, check, firings_between
from agentload.watch.trends import IdentityChange, Point

EXECUTIONS: Final = 60
NEVER: Final = 1 << 63
GRACE_NS: Final = 3_600_000_000_000
"""How long after a firing a job may start before it is overdue: staggers and machines that wake
up.
"""
REACH: Final = 3.5
"""Percent that a trend shows on both sides at least: less than 3 counts for nothing. Beyond it a
side reaches as far as its own values."""
EDGED: Final = 1.1
ROOM: Final = 1.3
"""Times the highest value: above it stands by how much a level changed."""
LEAST_RUNS: Final = 3
GLANCED: Final = 30
"""Executions in the sparkline next to a job's name."""
_ENDED: Final = {
    "void": "is invalid",
    "missed": "was missed",
    "dead": "found a dead endpoint",
    "running": "was killed",
}


class Raised(Record):
    """An alarm and its job."""

    job: str
    alarm: Alarm
    chart: Plot | None = None


class JobLine(Record):
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
    failing: int
    """Open alarms for runs without usable figures: nothing was compared."""
    better: int
    muted: int
    """Open alarms that nobody wants to hear of today."""

    @property
    def latest(self) -> Execution | None:
        """Return the last execution; None where there is none."""
        if not self.past:
            return None
        return self.past[-1]

    def blind(self, running: Container[str | None], now_ns: int) -> str | None:
        """Say why nothing is known of the job's present state; None where it is known.

        It is where the latest execution was judged, and is the one that the schedule asks for.
        """
        ran = [each for each in self.past if each.outcome != "skipped"]
        ended = [each for each in ran if each.outcome != "running" or each.run_id not in running]
        if not ended:
            return "has never run"
        latest = ended[-1]
        if latest.outcome not in {"done", "accepted"}:
            return f"the latest run {_ended_words(latest)}{_repeated(ended)}"
        if self.schedule is not None:
            due = firings_between(self.schedule, self.past[-1].started_ns, now_ns - GRACE_NS)
            if due:
                return f"is overdue: {say.plural(len(due), 'firing')} without a run"
        if latest.detail.reference is None and latest.outcome == "done":
            return "has only its first run, which later ones are compared with"
        return None


def _ended_words(latest: Execution) -> str:
    """Say how a run without usable figures ended, and why."""
    words = _ENDED.get(latest.outcome, latest.outcome)
    if latest.detail.reason:
        return f"{words}: {latest.detail.reason}"
    return words


def _repeated(ended: Sequence[Execution]) -> str:
    """Say how many of the runs ended as the latest did, where it is not alone."""
    alike = sum(each.outcome == ended[-1].outcome for each in ended)
    if alike > 1:
        return f"; {alike} of {len(ended)} runs ended so"
    return ""


class Standing(Record):
    """What all jobs together show, in a sentence."""

    text: str
    tone: Tone
    blind: tuple[tuple[str, str], ...]
    """Jobs of which nothing is known now, each with the reason."""


def standing(lines: Sequence[JobLine], running: Container[str | None], now_ns: int) -> Standing:
    """Sum jobs up: red where one got worse, green only where every job was judged lately."""
    reasons = [(line.job, line.blind(running, now_ns)) for line in lines]
    blind = tuple((job, why) for job, why in reasons if why is not None)
    worse = sum(line.worse for line in lines)
    changed = sum(line.changed for line in lines)
    muted = sum(line.muted for line in lines)
    tone: Tone = "plain"
    if worse:
        things = "One thing" if worse == 1 else f"{worse} things"
        text, tone = f"{things} got worse", "bad"
    elif blind:
        text = _unjudged(blind, len(lines))
    elif changed:
        servers = "a server" if changed == 1 else "servers"
        text = f"Nothing got worse, but {servers} changed"
    elif muted:
        text = f"Nothing else got worse: {say.plural(muted, 'alarm')} muted"
    else:
        text, tone = "Nothing got worse", "good"
    return Standing(text=text, tone=tone, blind=blind)


def _unjudged(blind: Sequence[tuple[str, str]], total: int) -> str:
    if total == 1:
        return f"{blind[0][0]} could not be judged"
    others = {0: "", 1: " · nothing got worse in the other"}
    rest = others.get(total - len(blind), " · nothing got worse in the others")
    return f"{len(blind)} of {total} jobs could not be judged{rest}"


class JobsPage(Record):
    """All jobs of a database and their alarms: open ones first, then by time."""

    lines: tuple[JobLine, ...]
    alarms: tuple[Raised, ...]


class TrendChart(Record):
    """One series: its chart, and its level changes in words."""

    name: str
    chart: Plot
    levels: tuple[trends.LevelChange, ...]


class JobPage(Record):
    """The data of the page."""

    line: JobLine
    trends: tuple[TrendChart, ...]
    alarms: tuple[Raised, ...]
    identities: tuple[IdentityChange, ...]
    executions: tuple[Execution, ...]
    """The executions shown, latest first."""


def jobs(connection: duckdb.DuckDBPyConnection, query: Query) -> JobsPage:
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
    lines = (_line(job, rows.get(job), past.get(job, []), found, query.today_ns) for job in names)
    return JobsPage(lines=tuple(lines), alarms=found)


def alarms(connection: duckdb.DuckDBPyConnection, *, job: str = "") -> tuple[Raised, ...]:
    """Read the alarms of one job, or of all."""
    wanted = {"job": job} if job else {}
    rows = tables.rows(connection, AlarmRow, **wanted)
    latest = sorted(rows, key=lambda row: (row.closed_ns is not None, -row.raised_ns))
    return tuple(Raised(job=row.job, alarm=alarm(row)) for row in latest)


def _line(
    job: str,
    row: JobRow | None,
    executions: list[ExecutionRow],
    found: tuple[Raised, ...],
    today_ns: int,
) -> JobLine:
    past = tuple(map(execution, executions[-GLANCED:]))
    still_open = [each.alarm for each in found if each.job == job and each.alarm.is_open]
    loud = Counter(alarm.kind for alarm in loud_alarms(still_open, today_ns))
    series, changes = _glance(past, still_open)
    return JobLine(
        job=job,
        schedule_text=row.schedule if row else "",
        schedule=_schedule(row.spec if row else "{}"),
        executions=len(executions),
        past=past,
        series=series,
        changes=changes,
        worse=loud["regression"] + loud["dead endpoint"],
        changed=loud["changed identity"],
        failing=loud["failing schedule"],
        better=loud["improvement"],
        muted=_muted(still_open, today_ns),
    )


def _muted(still_open: Sequence[Alarm], today_ns: int) -> int:
    """Count the muted alarms that somebody would have to look at."""
    amiss = [alarm for alarm in still_open if alarm.kind != "improvement"]
    return len(amiss) - len(loud_alarms(amiss, today_ns))


def _glance(
    past: Sequence[Execution], still_open: Sequence[Alarm]
) -> tuple[str | None, tuple[float, ...]]:
    """Return the series next to a job's name and its relative changes.

    It is the first that raised an alarm, else the first.
    """
    changes = list(chain.from_iterable(each.detail.changes for each in past))
    named = [change.series for change in changes]
    raised = {alarm.metric for alarm in still_open}
    alarmed = [series for series in named if series in raised]
    series = next(iter(alarmed + named), None)
    own = [change.log_ratio for change in changes if change.series == series]
    return series, tuple(map(math.expm1, own))


def _schedule(spec: str) -> Schedule | None:
    said = json.loads(spec).get("schedule")
    try:
        found = msgspec.convert(said, Schedule)
        check(found, where="")
    except (msgspec.ValidationError, AgentloadError):  # of another version
        return None
    return found


def job(connection: duckdb.DuckDBPyConnection, query: Query) -> JobPage:
    """Read a job; raise `NotFoundError` if there is none of that name."""
    found = jobs(connection, query)
    if not found.lines:
        raise NotFoundError(
            f"no job '{query.name}' in this database", hint=f"agentload watch run {query.name}"
        )
    history = trends_of(connection, query.name, found.alarms)
    return JobPage(
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
    own = tuple(each.alarm for each in alarms if each.job == name)
    return trends.trends(name, executions(connection, name), own)


def trend(series: trends.Trend, *, job: str) -> TrendChart:
    """Draw a series."""
    points = series.points
    lows = [point.value if point.low is None else point.low for point in points]
    highs = [point.value if point.high is None else point.high for point in points]
    values = Series(
        label=series.name,
        slot=2,
        mark="points",
        xs=tuple(map(float, range(1, len(points) + 1))),
        ys=tuple(100 * point.value for point in points),
        lows=tuple(100 * low for low in lows),
        highs=tuple(100 * high for high in highs),
        tips=tuple(map(_tip, points)),
    )
    room = ROOM if series.change_points else EDGED
    low = min(-REACH, EDGED * min(values.lows))
    high = max(REACH, room * max(values.highs))
    means = tuple(_means(series))
    bands = tuple(_bands(series))
    caption = (
        "Change from the first reference run; higher is slower.",
        "Bars are each run's own 95% interval; runs vary by more than that.",
        "Horizontal lines: means." if means else "",
        "Dashed line: level change." if series.change_points else "",
        "Band: alarm." if bands else "",
    )
    days = f"{_day(points[0])} to {_day(points[-1])}"
    chart = Plot(
        name=slug(f"{job}-{series.name}"),
        title=f"{METRICS[series.metric].capitalize()} of {series.arm}",
        caption=say.join(caption, " "),
        x=ChartAxis(label=f"run, {days}", quantity="count", whole=True),
        y=ChartAxis(label="change, %", quantity="percent", low=low, high=high),
        series=(values, *means),
        bands=bands,
        rules=tuple(
            RuleLine(axis="x", at=level.point + 0.5, label=say.relative(level.change))
            for level in series.change_points
        ),
    )
    return TrendChart(name=series.name, chart=chart, levels=series.change_points[::-1])


def _means(series: trends.Trend) -> Iterator[Series]:
    """Draw the mean of each stretch between level changes and alarms; of fewer than three runs
    none. It is geometric, so that two of them give the level change between them.
    """
    levels = (level.point for level in series.change_points)
    raised = (_runs_until(series, each.raised_ns) - 1 for each in series.alarms)
    inner = {each for each in (*levels, *raised) if 0 < each < len(series.points)}
    for low, high in pairwise((0, *sorted(inner), len(series.points))):
        if high - low < LEAST_RUNS:
            continue
        logs = [math.log1p(point.value) for point in series.points[low:high]]
        mean = math.expm1(fmean(logs))
        ends = (low + 0.5, high + 0.5)
        tip = f"mean of runs {low + 1} to {high}: {say.relative(mean)}"
        yield Series(
            label="mean",
            slot=None,
            mark="line",
            xs=ends,
            ys=(100 * mean, 100 * mean),
            tips=(tip, tip),
        )


def _bands(series: trends.Trend) -> Iterator[Band]:
    """Shade from the run that raised an alarm to the one that closed it."""
    for each in series.alarms:
        raised = _runs_until(series, each.raised_ns)
        closed = _runs_until(series, each.closed_ns or NEVER)
        if not raised:
            continue
        high = len(series.points) + 0.5 if each.is_open else float(closed)
        slot = 1 if each.kind == "regression" else 5
        yield Band(axis="x", low=float(raised), high=high, slot=slot)


def _runs_until(series: trends.Trend, at_ns: int) -> int:
    return bisect_right(series.points, at_ns, key=lambda point: point.at_ns)


def _day(point: Point) -> str:
    return f"{datetime.fromtimestamp(point.at_ns / 1e9, UTC):%Y-%m-%d}"


def _tip(point: Point) -> str:
    if point.run_id == point.reference:
        return f"{point.run_id}: the reference"
    ends = ""
    if point.low is not None and point.high is not None:
        ends = f" [{say.with_sign(100 * point.low, 1)}, {say.with_sign(100 * point.high, 1)}]"
    return f"{point.run_id}: {say.relative(point.value)}{ends}"
