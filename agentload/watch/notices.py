"""Tell what an execution came to: in words, in files written anew
each time, and by a webhook where an alarm is raised or closed.
"""

import math
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, get_args
from xml.etree import ElementTree as ET

import aiohttp
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from agentload.report.format import when
from agentload.telemetry.reach import environment, page
from agentload.watch.alarms import GATED, Alarm, Kind, heard
from agentload.watch.execute import Executed
from agentload.watch.history import UNUSABLE, Change, Execution, executions
from agentload.watch.job import Job, worded
from agentload.watch.jobs_file import replace_file
from agentload.watch.trends import Level, Series, trends

LATE_S: Final = (
    3900.0  # after its firing: a job of another zone is called hourly, and a stagger is no delay
)


def summary(executed: Executed) -> str:
    """Return what a person reads after an execution."""
    return "\n".join(_summed_up(executed))


def change_told(change: Change) -> str:
    """Return a change with the interval that the run itself gives it."""
    value, low, high = change.relative()
    return f"{worded(change.series)} {value:+.1%} ({low:+.1%} to {high:+.1%}, {change.pairs} pairs)"


def alarm_told(alarm: Alarm) -> str:
    """Return an alarm in one sentence, with what changed just before."""
    named = f" {alarm.metric}" if alarm.metric and alarm.metric not in alarm.message else ""
    since = (
        ""
        if not alarm.suspects or alarm.kind == "changed identity"
        else f"; changed just before: {'; '.join(alarm.suspects)}"
    )
    muted = (
        f"; muted until {when(alarm.muted_ns)}"
        if alarm.is_open and alarm.muted_ns is not None
        else ""
    )
    return worded(f"{alarm.kind}{named}: {alarm.message}{since}{muted}")


def level_told(series: Series, level: Level) -> str:
    """Return a change of level in one sentence, with what changed just before."""
    near = f"; changed just before: {'; '.join(level.suspects)}" if level.suspects else ""
    return (
        f"{worded(series.name)} {level.change:+.1%} since {when(level.at_ns)}, run "
        f"{level.run_id} (p = {level.p:.2g}){near}"
    )


def usd_told(usd: float) -> str:
    """Return dollars, with two digits that say something."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.2g}"


def outcome_told(each: Execution) -> str:
    """Return an execution's outcome, with the reason where there is one."""
    late = f", {each.late_s / 3600:,.1f} h late" if each.late_s > LATE_S else ""
    if each.outcome == "done":
        told = (
            "done: the reference from now on"
            if each.detail.reference is None
            else f"done, against {each.detail.reference}"
        )
        return told + late
    if each.outcome == "accepted":
        return "accepted as the reference" + (
            "" if each.detail.reason is None else f": {each.detail.reason}"
        )
    if each.outcome == "muted":
        until = when(each.detail.until_ns or each.started_ns)
        return f"{each.detail.kind} muted until {until}" + (
            "" if each.detail.reason is None else f": {each.detail.reason}"
        )
    said = "invalid" if each.outcome == "void" else each.outcome
    return said + late + ("" if each.detail.reason is None else f": {each.detail.reason}")


def _summed_up(executed: Executed) -> Iterator[str]:
    execution = executed.execution
    yield f"{execution.job}: {outcome_told(execution)}"
    if execution.run_id is not None:
        yield f"  run {execution.run_id}"
    if execution.detail.headline is not None and execution.outcome not in UNUSABLE:
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
            yield f"  still open: {alarm_told(alarm)}"


LATELY = 14


def digest(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> str:
    """Return the digest of a job."""
    return "\n".join(_lines(job, history, alarms)) + "\n"


def _lines(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> Iterator[str]:
    standing = [each for each in alarms if each.is_open]
    yield f"# {job}: {_state(standing, history)}"
    yield ""
    for alarm in standing:
        yield f"- **{_plain(alarm_told(alarm))}** (since {when(alarm.raised_ns)})"
    if standing:
        yield ""
    latest = history[-LATELY:]
    series = list(dict.fromkeys(change.series for each in latest for change in each.detail.changes))
    yield (
        "| started (UTC) | outcome | "
        + "".join(f"{_plain(worded(name))} | " for name in series)
        + "run |"
    )
    yield "|---|---|" + "---:|" * len(series) + "---|"
    for each in reversed(latest):
        found = {change.series: change for change in each.detail.changes}
        cells = "".join(
            f"{math.expm1(found[name].log_ratio):+.1%} | " if name in found else "– | "
            for name in series
        )
        yield (
            f"| {when(each.started_ns)} | {_plain(outcome_told(each))} | "
            f"{cells}{each.run_id or '–'} |"
        )
    yield from _levels(job, history, alarms)
    over = [each for each in alarms if not each.is_open][-LATELY:]
    if over:
        yield ""
        yield "Closed alarms:"
        yield ""
        for alarm in reversed(over):
            yield (
                f"- {_plain(alarm_told(alarm))} ({when(alarm.raised_ns)} to "
                f"{when(alarm.closed_ns or alarm.raised_ns)})"
            )


def _levels(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> Iterator[str]:
    told = [
        f"- {_plain(level_told(series, each))}"
        for series in trends(job, history, alarms).series
        for each in series.change_points
    ]
    if told:
        yield ""
        yield "Changes of level:"
        yield ""
        yield from told


def _state(standing: Sequence[Alarm], history: Sequence[Execution]) -> str:
    if loud := heard(standing, _now_ns(history)):
        return ", ".join(dict.fromkeys(each.kind for each in loud))
    ran = executions(history)
    if not ran:
        return "not executed yet"
    if ran[-1].outcome in UNUSABLE:
        return "the latest run could not be judged"
    muted = dict.fromkeys(each.kind for each in standing)
    return f"nothing else got worse ({', '.join(muted)} muted)" if muted else "nothing got worse"


def _now_ns(history: Sequence[Execution]) -> int:
    """Return the instant that a notice is of."""
    return history[-1].ended_ns or history[-1].started_ns if history else 0


def _plain(text: str) -> str:
    """Keep what a server or an arms file said from turning into Markdown or HTML."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return "".join(
        f"\\{each}" if each in "|*_`[]" else " " if each in "\r\n" else each for each in escaped
    )


def junit(job: str, execution: Execution, alarms: Sequence[Alarm]) -> str:
    """Return one test for the execution and one for each watched
    series; an open alarm is a failure, what could not run an error.
    """
    seconds = (
        0.0 if execution.ended_ns is None else (execution.ended_ns - execution.started_ns) / 1e9
    )
    started = f"{datetime.fromtimestamp(execution.started_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}"
    suite = ET.Element(
        "testsuite", name=f"agentload.{job}", timestamp=started, time=f"{seconds:.3f}"
    )
    whole = ET.SubElement(
        suite, "testcase", classname=f"agentload.{job}", name="execution", time=f"{seconds:.3f}"
    )
    match execution.outcome:
        case "done":
            pass
        case "skipped":
            ET.SubElement(whole, "skipped", message=_text(execution.detail.reason or ""))
        case "void":
            ET.SubElement(
                whole, "failure", message=_text(execution.detail.reason or "void"), type="void"
            )
        case _:
            ET.SubElement(
                whole,
                "error",
                message=_text(execution.detail.reason or execution.outcome),
                type=execution.outcome,
            )
    standing = [
        each
        for each in heard(alarms, execution.ended_ns or execution.started_ns)
        if each.kind in GATED
    ]
    for alarm in standing:
        if alarm.metric is None:
            ET.SubElement(whole, "failure", message=_text(alarm_told(alarm)), type=alarm.kind)
    for change in execution.detail.changes:
        test = ET.SubElement(
            suite, "testcase", classname=f"agentload.{job}", name=_text(change.series), time="0"
        )
        for alarm in standing:
            if alarm.metric == change.series:
                ET.SubElement(test, "failure", message=_text(alarm_told(alarm)), type=alarm.kind)
        ET.SubElement(test, "system-out").text = _text(change_told(change))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    ET.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _text(text: str) -> str:
    """Leave out what XML cannot hold; a server's words may have anything in them."""
    return "".join(
        each
        for each in text
        if each in "\t\n"
        or (each >= " " and not "\ud800" <= each <= "\udfff" and each not in "\ufffe\uffff")
    )


KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def prometheus(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> str:
    """Return gauges of the latest execution; labels
    are the job, and the series or the kind of alarm.
    """
    registry = CollectorRegistry()
    last = Gauge(
        "agentload_watch_last_execution_timestamp_seconds",
        "When a job was last executed",
        ["job"],
        registry=registry,
    )
    usable = Gauge(
        "agentload_watch_last_usable_timestamp_seconds",
        "When a job last gave usable figures",
        ["job"],
        registry=registry,
    )
    change = Gauge(
        "agentload_watch_change_ratio",
        "Change against the reference run, 0.05 is 5 % slower",
        ["job", "arm", "metric"],
        registry=registry,
    )
    standing = Gauge(
        "agentload_watch_alarms",
        "Alarms that are open and not muted",
        ["job", "kind"],
        registry=registry,
    )
    ran = executions(history)
    if ran:
        last.labels(job).set(ran[-1].started_ns / 1e9)
    done = [each for each in history if each.outcome == "done"]
    if done:
        usable.labels(job).set(done[-1].started_ns / 1e9)
        for each in done[-1].detail.changes:
            change.labels(job, each.arm, each.metric).set(math.expm1(each.log_ratio))
    for kind in KINDS:
        standing.labels(job, kind).set(
            sum(each.kind == kind for each in heard(alarms, _now_ns(history)))
        )
    return generate_latest(registry).decode()


TIMEOUT_S: Final = 10.0


def send(job: Job, executed: Executed) -> tuple[str, ...]:
    """Write the job's files and call its webhook; return what did
    not work, for no notice may cost the execution's exit code.
    """
    return tuple(_failures(job, executed))


def payload(executed: Executed) -> dict[str, Any]:
    """Return what a webhook gets: `text` is what Slack shows, the rest is for programs."""
    execution = executed.execution
    return {
        "text": summary(executed),
        "job": execution.job,
        "run": execution.run_id,
        "outcome": execution.outcome,
        "exit_code": executed.code,
        "raised": [
            {"kind": each.kind, "metric": each.metric, "message": alarm_told(each)}
            for each in executed.raised
        ],
        "closed": [
            {"kind": each.kind, "metric": each.metric, "message": alarm_told(each)}
            for each in executed.closed
        ],
    }


def _failures(job: Job, executed: Executed) -> Iterator[str]:
    wanted = job.notify
    if executed.execution.outcome == "skipped":  # the execution that runs will tell all of it
        return
    texts = (
        (wanted.digest, digest(job.name, executed.history, executed.alarms)),
        (wanted.junit, junit(job.name, executions(executed.history)[-1], executed.alarms)),
        (wanted.prometheus, prometheus(job.name, executed.history, executed.alarms)),
    )
    for path, text in texts:
        if path is not None:
            try:
                replace_file(path, text)
            except OSError as error:
                yield f"{path}: {error.strerror}"
    news = [
        each
        for each in (*executed.raised, *executed.closed)
        if not each.is_muted(_now_ns(executed.history))
    ]
    if wanted.webhook_env is not None and (wanted.always or news):
        yield from _called(wanted.webhook_env, payload(executed))


def _called(variable: str, content: dict[str, Any]) -> Iterator[str]:
    url = os.environ.get(variable, "")
    if not url.startswith(("http://", "https://")):
        yield f"environment variable {variable} holds no URL: no webhook was called"
        return
    try:
        answer = page(url, environment(url), within_s=TIMEOUT_S, given=content)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # The URL is a secret: it is named by its variable alone.
        yield f"webhook of {variable} failed: {type(getattr(error, 'os_error', error)).__name__}"
    else:
        if not answer.is_good:
            yield f"webhook of {variable} failed: {answer.status}"
