"""A webhook is called when an alarm is raised or closed, and its failure costs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.watch.alarms import Alarm, Rule, alarms
from agentload.watch.execute import Executed
from agentload.watch.history import Execution
from agentload.watch.job import Job, Notify
from agentload.watch.notices import send
from agentload.watch.schedule import Schedule
from tests.watch.histories import history

pytestmark = pytest.mark.loopback

WORSE = history(*[0.0, 0.004, -0.003] * 4, 0.08)
STUDY = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="prod=http://127.0.0.1:1/v1"))


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/secret", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def job(notify: Notify) -> Job:
    return Job(name="nightly", study=STUDY, schedule=Schedule(cron="0 2 * * *"), notify=notify)


def executed(past: tuple[Execution, ...], *, raised: tuple[Alarm, ...]) -> Executed:
    return Executed(execution=past[-1], history=past, alarms=raised, raised=raised, closed=(), code=3 if raised else 0)


def test_a_raised_alarm_calls_the_webhook_with_a_text_that_slack_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = alarms(WORSE, Rule())
    with receiver() as (url, got):
        monkeypatch.setenv("HOOK", url)
        assert send(job(Notify(webhook_env="HOOK")), executed(WORSE, raised=found)) == ()
    (content,) = got
    assert "raised: regression: prod: turn_ms +8." in content["text"]
    assert (content["job"], content["exit_code"], content["raised"][0]["kind"]) == ("nightly", 3, "regression")


def test_a_quiet_execution_calls_it_only_when_it_always_shall(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as (url, got):
        monkeypatch.setenv("HOOK", url)
        quiet = executed(WORSE[:-1], raised=())
        assert send(job(Notify(webhook_env="HOOK")), quiet) == ()
        assert got == []
        assert send(job(Notify(webhook_env="HOOK", always=True)), quiet) == ()
        assert len(got) == 1


def test_a_webhook_that_fails_is_told_without_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    told = job(Notify(webhook_env="HOOK", always=True))
    with receiver(500) as (url, _):
        monkeypatch.setenv("HOOK", url)
        assert send(told, executed(WORSE[:-1], raised=())) == ("webhook of HOOK failed: 500",)
    assert send(told, executed(WORSE[:-1], raised=())) == ("webhook of HOOK failed: ConnectionRefusedError",)
    monkeypatch.setenv("HOOK", "http://127.0.0.1/sec ret")
    assert send(told, executed(WORSE[:-1], raised=())) == ("webhook of HOOK failed: InvalidURL",)
    monkeypatch.delenv("HOOK")
    assert send(told, executed(WORSE[:-1], raised=())) == ("environment variable HOOK holds no URL: no webhook was called",)


def test_a_file_that_cannot_be_written_is_told_and_the_others_are_written(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    notify = Notify(digest=tmp_path / "file", prometheus=tmp_path / "p.prom")
    assert send(job(notify), executed(WORSE[:-1], raised=())) == (f"{tmp_path}/file: Is a directory",)
    assert (tmp_path / "p.prom").is_file()
