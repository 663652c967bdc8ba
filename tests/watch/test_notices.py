"""A JUnit file says what holds; a webhook is called when an
alarm is raised or closed, and its failure costs nothing.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest

from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.watch import notices
from agentload.watch.alarms import Alarm, ChangeRule, alarms
from agentload.watch.books import Executed
from agentload.watch.history import Execution, Outcome
from agentload.watch.job import Job, Notify
from agentload.watch.notices import junit, send
from agentload.watch.schedule import Schedule
from agentload.watch.words import outcome_words, summary
from tests.live.hostile import MODES
from tests.live.hostility import again, flood
from tests.live.scripted import Answer, Peer, serving
from tests.watch.histories import execution, history

WORSE = history(*[0.0, 0.004, -0.003] * 4, 0.08)


def test_an_invalid_run_is_not_summed_up_with_a_decision() -> None:
    decided = execution(3, "void", reason="late")
    decided = replace(
        decided, detail=replace(decided.detail, headline="stay on BF16; test FP8 further")
    )
    assert "stay on" not in summary(
        Executed(execution=decided, history=(decided,), alarms=(), raised=(), closed=(), code=3)
    )


def test_junit_fails_the_series_that_got_worse() -> None:
    root = ET.fromstring(junit("nightly", WORSE[-1], alarms(WORSE, ChangeRule())))
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
    }
    assert [each.get("name") for each in root if each.find("failure") is not None] == [
        "prod: turn_ms"
    ]
    dead = ET.fromstring(junit("nightly", execution(1, "dead", reason="\x00refused"), ()))
    assert [each.get("message") for each in dead.iter("error")] == ["refused"]


# What Jenkins' junit-10.xsd lets an element have, the attributes that it must have first.
JUNIT = {
    "testsuite": (
        ("name", "tests", "failures", "errors"),
        ("skipped", "time", "timestamp"),
        {"testcase"},
    ),
    "testcase": (("name", "classname"), ("time",), {"skipped", "error", "failure", "system-out"}),
    "failure": ((), ("message", "type"), set()),
    "error": ((), ("message", "type"), set()),
    "skipped": ((), ("message",), set()),
    "system-out": ((), (), set()),
}


@pytest.mark.parametrize("outcome", [each for each in get_args(Outcome) if each != "accepted"])
def test_junit_is_what_continuous_integration_reads(outcome: Outcome) -> None:
    last = execution(
        14,
        outcome,
        change=0.09 if outcome in {"done", "void"} else None,
        reason=None if outcome == "done" else "a < b & c",
    )
    root = ET.fromstring(junit("nightly", last, alarms((*WORSE, last), ChangeRule())))
    for each in root.iter():
        needed, allowed, children = JUNIT[each.tag]
        assert set(needed) <= set(each.attrib) <= {*needed, *allowed}
        assert {child.tag for child in each} <= children
    counts = {
        word: len(root.findall(f"testcase/{tag}"))
        for word, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    assert {word: int(root.get(word, "")) for word in counts} == counts
    assert int(root.get("tests", "")) == len(root.findall("testcase"))
    assert root.get("timestamp") == "1970-01-15T00:00:00"
    expected = {"done": "failures", "void": "failures", "skipped": "skipped"}.get(outcome, "errors")
    assert counts[expected] >= 1


def test_an_execution_that_started_late_says_so() -> None:
    day_ns = 86_400_000_000_000
    assert (
        outcome_words(replace(execution(3), due_ns=3 * day_ns - 8 * 3_600_000_000_000))
        == "done: the reference from now on, 8.0 h late"
    )
    assert outcome_words(execution(3)) == "done: the reference from now on"


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
    return Executed(
        execution=past[-1],
        history=past,
        alarms=raised,
        raised=raised,
        closed=(),
        code=3 if raised else 0,
    )


@pytest.mark.loopback
def test_a_raised_alarm_calls_the_webhook_with_a_text_that_slack_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = alarms(WORSE, ChangeRule())
    with receiver() as (url, got):
        monkeypatch.setenv("HOOK", url)
        assert send(job(Notify(webhook_env="HOOK")), executed(WORSE, raised=found)) == ()
    (content,) = got
    assert "raised: regression: prod: turn latency +8." in content["text"]
    assert (content["job"], content["exit_code"], content["raised"][0]["kind"]) == (
        "nightly",
        3,
        "regression",
    )


@pytest.mark.loopback
def test_a_quiet_execution_calls_it_only_when_it_always_shall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver() as (url, got):
        monkeypatch.setenv("HOOK", url)
        quiet = executed(WORSE[:-1], raised=())
        assert send(job(Notify(webhook_env="HOOK")), quiet) == ()
        assert got == []
        assert send(job(Notify(webhook_env="HOOK", always=True)), quiet) == ()
        assert len(got) == 1


@pytest.mark.loopback
def test_a_webhook_that_fails_is_told_without_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    told = job(Notify(webhook_env="HOOK", always=True))
    with receiver(500) as (url, _):
        monkeypatch.setenv("HOOK", url)
        assert send(told, executed(WORSE[:-1], raised=())) == ("webhook of HOOK failed: 500",)
    assert send(told, executed(WORSE[:-1], raised=())) == (
        "webhook of HOOK failed: ConnectionRefusedError",
    )
    monkeypatch.setenv("HOOK", "http://127.0.0.1:99999/secret")
    assert send(told, executed(WORSE[:-1], raised=())) == (
        "webhook of HOOK failed: InvalidUrlClientError",
    )
    monkeypatch.delenv("HOOK")
    assert send(told, executed(WORSE[:-1], raised=())) == (
        "environment variable HOOK holds no URL: no webhook was called",
    )


@pytest.mark.loopback
def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert send(job(Notify(junit=tmp_path)), executed(WORSE[:-1], raised=())) == (
        f"{tmp_path}: Is a directory",
    )


@pytest.mark.loopback
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_redirects_is_not_followed_and_its_notice_counts_as_lost(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Location", f"{there}/taken?token=of+ours")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with receiver() as (there, got), HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("HOOK", f"http://127.0.0.1:{server.server_port}/secret")
            told = send(
                job(Notify(webhook_env="HOOK", always=True)), executed(WORSE[:-1], raised=())
            )
        finally:
            server.shutdown()
            thread.join()
    assert (told, got) == ((f"webhook of HOOK failed: {status}",), [])


async def drips_a_head(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await peer.send(b"x: y\r\n")
        await asyncio.sleep(0.02)


async def drips_a_body(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        await peer.send(b"x")
        await asyncio.sleep(0.02)


async def floods(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
    await flood(peer, again(b"x" * 65_536, 1 << 30))


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("receive", "why"),
    [
        (Peer.hang, "TimeoutError"),
        (drips_a_head, "TimeoutError"),
        (drips_a_body, "TimeoutError"),
        (floods, "OversizeError"),
        (MODES["closed_at_once"].answer, "ServerDisconnectedError"),
        (MODES["alert_of_tls"].answer, "ClientResponseError"),
    ],
)
async def test_a_receiver_that_is_slow_or_broken_holds_nobody_up_and_is_named_by_its_variable(
    receive: Answer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TIMEOUT_S", 0.5 if why == "TimeoutError" else 100.0)
    told = job(Notify(webhook_env="HOOK", always=True))
    async with serving(receive) as server:
        monkeypatch.setenv("HOOK", f"{server.url}/secret")
        async with asyncio.timeout(60):
            (said,) = await asyncio.to_thread(send, told, executed(WORSE[:-1], raised=()))
        server.failures.clear()
    assert said == f"webhook of HOOK failed: {why}"
