"""Tell those who want to know: files written anew after each execution, and a webhook where an alarm is raised or closed."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from agentload.watch.execute import Executed
from agentload.watch.exports.digest import digest
from agentload.watch.exports.junit import junit
from agentload.watch.exports.prometheus import prometheus
from agentload.watch.history import executions
from agentload.watch.job import Job
from agentload.watch.words import alarm_told, summary

TIMEOUT_S: Final = 10.0


def send(job: Job, executed: Executed) -> tuple[str, ...]:
    """Write the job's files and call its webhook; return what did not work, for no notice may cost the execution's exit code."""
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
        "raised": [{"kind": each.kind, "metric": each.metric, "message": alarm_told(each)} for each in executed.raised],
        "closed": [{"kind": each.kind, "metric": each.metric, "message": alarm_told(each)} for each in executed.closed],
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
                _write(path, text)
            except OSError as error:
                yield f"{path}: {error.strerror}"
    if wanted.webhook_env is not None and (wanted.always or executed.raised or executed.closed):
        yield from _called(wanted.webhook_env, payload(executed))


def _write(path: Path, text: str) -> None:
    """Replace a file at once: a collector may read it at this moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _called(variable: str, content: dict[str, Any]) -> Iterator[str]:
    url = os.environ.get(variable, "")
    if not url.startswith(("http://", "https://")):
        yield f"environment variable {variable} holds no URL: no webhook was called"
        return
    body = json.dumps(content).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})  # noqa: S310  # the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310  # as above
            pass
    except (OSError, HTTPException, ValueError) as error:
        # The URL is a secret: it is named by its variable alone.
        reason = getattr(error, "code", None) or type(getattr(error, "reason", error)).__name__
        yield f"webhook of {variable} failed: {reason}"
