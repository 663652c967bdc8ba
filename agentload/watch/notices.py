"""Notify others of an execution: continuous integration by JUnit, people by a webhook."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree import ElementTree as ET

import aiohttp

from agentload.telemetry.reach import environment, page
from agentload.watch.alarms import GATED, Alarm, loud_alarms
from agentload.watch.books import Executed
from agentload.watch.history import Execution, executions
from agentload.watch.job import Job
from agentload.watch.jobs_file import replace_file
from agentload.watch.words import alarm_words, change_words, summary

TIMEOUT_S: Final = 10.0


def send(job: Job, executed: Executed) -> tuple[str, ...]:
    """Write the job's JUnit file and call its webhook; return what did not work.

    No failed notice may cost the execution its exit code.
    """
    if executed.execution.outcome == "skipped":  # the execution that runs will send its own notices
        return ()
    return (*_written(job, executed), *_called(job, executed))


def _written(job: Job, executed: Executed) -> Iterator[str]:
    path = job.notify.junit
    if path is None:
        return
    try:
        latest = executions(executed.history)[-1]
        replace_file(path, junit(job.name, latest, executed.alarms))
    except OSError as error:
        yield f"{path}: {error.strerror}"


def _called(job: Job, executed: Executed) -> Iterator[str]:
    variable = job.notify.webhook_env
    if variable is None or not (job.notify.always or _has_news(executed)):
        return
    url = os.environ.get(variable, "")
    if not url.startswith(("http://", "https://")):
        yield f"environment variable {variable} holds no URL: no webhook was called"
        return
    try:
        answer = page(url, environment(url), within_s=TIMEOUT_S, given=payload(executed))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # The URL is a secret: it is named by its variable alone.
        yield f"webhook of {variable} failed: {type(getattr(error, 'os_error', error)).__name__}"
        return
    if not answer.is_good:
        yield f"webhook of {variable} failed: {answer.status}"


def _has_news(executed: Executed) -> bool:
    at_ns = executed.history[-1].settled_ns
    changed = (*executed.raised, *executed.closed)
    return not all(each.is_muted(at_ns) for each in changed)


def payload(executed: Executed) -> dict[str, Any]:
    """Return what a webhook gets: `text` is what Slack shows, the rest is for programs."""
    execution = executed.execution
    return {
        "text": summary(executed),
        "job": execution.job,
        "run": execution.run_id,
        "outcome": execution.outcome,
        "exit_code": executed.code,
        "raised": [_alarm(each) for each in executed.raised],
        "closed": [_alarm(each) for each in executed.closed],
    }


def _alarm(alarm: Alarm) -> dict[str, str | None]:
    return {"kind": alarm.kind, "metric": alarm.metric, "message": alarm_words(alarm)}


def junit(job: str, execution: Execution, alarms: Sequence[Alarm]) -> str:
    """Return a JUnit file with one test for the execution and one for each watched series.

    An open alarm is a failure; an execution that could not run is an error.
    """
    failing = [each for each in loud_alarms(alarms, execution.settled_ns) if each.kind in GATED]
    seconds = f"{(execution.settled_ns - execution.started_ns) / 1e9:.3f}"
    started = f"{datetime.fromtimestamp(execution.started_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}"
    named = f"agentload.{job}"
    suite = ET.Element("testsuite", name=named, timestamp=started, time=seconds)
    whole = ET.SubElement(suite, "testcase", classname=named, name="execution", time=seconds)
    _add_outcome(whole, execution)
    _add_failures(whole, [each for each in failing if each.metric is None])
    for change in execution.detail.changes:
        name = _text(change.series)
        test = ET.SubElement(suite, "testcase", classname=named, name=name, time="0")
        _add_failures(test, [each for each in failing if each.metric == change.series])
        ET.SubElement(test, "system-out").text = _text(change_words(change))
    suite.set("tests", str(len(suite)))
    for counted, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(counted, str(len(suite.findall(f"testcase/{element}"))))
    ET.indent(suite)
    text = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_outcome(test: ET.Element, execution: Execution) -> None:
    word, reason = execution.outcome, execution.detail.reason
    match word:
        case "done":
            pass
        case "skipped":
            ET.SubElement(test, "skipped", message=_text(reason or ""))
        case "void":
            ET.SubElement(test, "failure", message=_text(reason or word), type=word)
        case _:
            ET.SubElement(test, "error", message=_text(reason or word), type=word)


def _add_failures(test: ET.Element, alarms: Sequence[Alarm]) -> None:
    for alarm in alarms:
        ET.SubElement(test, "failure", message=_text(alarm_words(alarm)), type=alarm.kind)


def _text(text: str) -> str:
    """Leave out what XML cannot hold: what a server says may have any character."""
    return "".join(each for each in text if _is_allowed(each))


def _is_allowed(character: str) -> bool:
    is_control = character < " " and character not in "\t\n"
    is_surrogate = "\ud800" <= character <= "\udfff"
    return not is_control and not is_surrogate and character not in "\ufffe\uffff"
