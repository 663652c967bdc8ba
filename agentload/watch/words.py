"""Say in words what an execution came to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from agentload.watch.alarms import Alarm
from agentload.watch.execute import Executed
from agentload.watch.history import Change, Execution
from agentload.watch.trends import Level, Series

LATE_S: Final = 3900.0  # after its firing: a job of another zone is called hourly, and a stagger is no delay


def summary(executed: Executed) -> str:
    """Return what a person reads after an execution."""
    return "\n".join(_lines(executed))


def change_told(change: Change) -> str:
    """Return a change with the interval that the run itself gives it."""
    value, low, high = change.relative()
    return f"{change.series} {value:+.1%} ({low:+.1%} to {high:+.1%}, {change.pairs} pairs)"


def alarm_told(alarm: Alarm) -> str:
    """Return an alarm in one sentence, with what changed just before."""
    named = f" {alarm.metric}" if alarm.metric and alarm.metric not in alarm.message else ""
    since = "" if not alarm.suspects or alarm.kind == "changed identity" else f"; changed just before: {'; '.join(alarm.suspects)}"
    return f"{alarm.kind}{named}: {alarm.message}{since}"


def level_told(series: Series, level: Level) -> str:
    """Return a change of level in one sentence, with what changed just before."""
    since = f"{datetime.fromtimestamp(level.at_ns / 1e9, UTC):%Y-%m-%d %H:%M}"
    near = f"; changed just before: {'; '.join(level.suspects)}" if level.suspects else ""
    return f"{series.name} {level.change:+.1%} since {since}, run {level.run_id} (p = {level.p:.2g}){near}"


def usd_told(usd: float) -> str:
    """Return dollars, with two digits that say something."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def outcome_told(each: Execution) -> str:
    """Return an execution's outcome, with the reason where there is one."""
    late = f", {each.late_s / 3600:,.1f} h late" if each.late_s > LATE_S else ""
    if each.outcome == "done":
        told = "done: the reference from now on" if each.detail.reference is None else f"done, against {each.detail.reference}"
        return told + late
    if each.outcome == "accepted":
        return "accepted as the reference" + ("" if each.detail.reason is None else f": {each.detail.reason}")
    return each.outcome + late + ("" if each.detail.reason is None else f": {each.detail.reason}")


def _lines(executed: Executed) -> Iterator[str]:
    execution = executed.execution
    yield f"{execution.job}: {outcome_told(execution)}"
    if execution.run_id is not None:
        yield f"  run {execution.run_id}"
    if execution.detail.headline is not None:
        yield f"  {execution.detail.headline}"
    for change in execution.detail.changes:
        yield f"  {change_told(change)}"
    if execution.detail.usd is not None:
        yield f"  cost {usd_told(execution.detail.usd)} USD"
    for alarm in executed.raised:
        yield f"  raised: {alarm_told(alarm)}"
    for alarm in executed.closed:
        yield f"  closed: {alarm_told(alarm)}"
    fresh = {*executed.raised, *executed.closed}
    for alarm in executed.alarms:
        if alarm.is_open and alarm not in fresh:
            yield f"  still: {alarm_told(alarm)}"
