"""A job's state as Markdown: what holds now, what happened lately."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution
from agentload.watch.trends import trends
from agentload.watch.words import alarm_told, level_told, outcome_told

LATELY = 14


def digest(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> str:
    """Return the digest of a job."""
    return "\n".join(_lines(job, history, alarms)) + "\n"


def _lines(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> Iterator[str]:
    standing = [each for each in alarms if each.is_open]
    yield f"# {job}: {_state(standing, history)}"
    yield ""
    for alarm in standing:
        yield f"- **{_plain(alarm_told(alarm))}** (since {_when(alarm.raised_ns)})"
    if standing:
        yield ""
    latest = history[-LATELY:]
    series = list(dict.fromkeys(change.series for each in latest for change in each.detail.changes))
    yield "| started (UTC) | outcome | " + "".join(f"{_plain(name)} | " for name in series) + "run |"
    yield "|---|---|" + "---:|" * len(series) + "---|"
    for each in reversed(latest):
        found = {change.series: change for change in each.detail.changes}
        cells = "".join(f"{math.expm1(found[name].log_ratio):+.1%} | " if name in found else "– | " for name in series)
        yield f"| {_when(each.started_ns)} | {_plain(outcome_told(each))} | {cells}{each.run_id or '–'} |"
    yield from _levels(job, history, alarms)
    over = [each for each in alarms if not each.is_open][-LATELY:]
    if over:
        yield ""
        yield "Alarms that are over:"
        yield ""
        for alarm in reversed(over):
            yield f"- {_plain(alarm_told(alarm))} ({_when(alarm.raised_ns)} to {_when(alarm.closed_ns or alarm.raised_ns)})"


def _levels(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> Iterator[str]:
    told = [f"- {_plain(level_told(series, each))}" for series in trends(job, history, alarms).series for each in series.change_points]
    if told:
        yield ""
        yield "Changes of level:"
        yield ""
        yield from told


def _state(standing: Sequence[Alarm], history: Sequence[Execution]) -> str:
    if standing:
        return ", ".join(dict.fromkeys(each.kind for each in standing))
    return "nothing got worse" if history else "not executed yet"


def _when(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d %H:%M}"


def _plain(text: str) -> str:
    """Keep what a server or an arms file said from turning into Markdown or HTML."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in "|*_`[]" else " " if each in "\r\n" else each for each in escaped)
