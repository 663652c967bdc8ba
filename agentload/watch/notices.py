"""Notify people of an execution by a webhook."""

import os
from collections.abc import Iterator
from typing import Any, Final

import aiohttp

from agentload.telemetry.reach import environment, page
from agentload.watch.alarms import Alarm
from agentload.watch.books import Executed
from agentload.watch.job import Job
from agentload.watch.words import alarm_words, summary

TIMEOUT_S: Final = 10.0


def send(job: Job, executed: Executed) -> tuple[str, ...]:
    """Call the job's webhook; return what did not work.

    No failed notice may cost the execution its exit code.
    """
    if executed.execution.outcome == "skipped":  # the execution that runs will send its own notices
        return ()
    return tuple(_called(job, executed))


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
    return any(not each.is_muted(at_ns) for each in (*executed.raised, *executed.closed))


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
