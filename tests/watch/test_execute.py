"""Executions end to end on emulated servers: limits, retention, several arms."""

from __future__ import annotations

import json
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from urllib.request import Request, urlopen

import pytest

from advisor.policy import Policy
from agentload.errors import StoreError
from agentload.live import health
from agentload.run.audience import Audience
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef
from agentload.verdict.policy import Setting
from agentload.watch import ledger, play
from agentload.watch.books import Books
from agentload.watch.execute import execute
from agentload.watch.history import Execution
from agentload.watch.job import Job, JobBudget
from agentload.watch.ledger import history
from agentload.watch.schedule import Schedule
from tests.watch.histories import history as recorded

pytestmark = pytest.mark.loopback

QUIET = (0.004, -0.003, 0.002, -0.006, 0.001, 0.005, -0.002, 0.003, -0.004, 0.0)
PLAYED = {"done", "void"}  # a busy machine may make figures void, and must say so
STUDY = Replay(
    traces=(TraceRef(path="demo-chat"),),
    servers=Live(endpoints="emulated:gpt-oss-20b-h100/bf16"),
    pairs=3,
    load=Load(sessions=1, wait_cap_s={"user": 0.01, "tool": 0.01}),
)
JOB = Job(
    name="nightly",
    study=STUDY,
    schedule=Schedule(cron="0 2 * * *"),
    budget=JobBudget(calls=12, minutes=2),
    control=False,
)

LENIENT = Setting(
    policy=Policy(
        max_send_lag_ms=1e6, max_loop_stall_ms=1e6, max_coalesced_share=1.0, max_dropped_share=1.0
    )
)


def on(endpoints: str) -> Replay:
    """Return what is played, on other endpoints."""
    return extend(STUDY, endpoints=endpoints)


def unheard(_: str) -> None:
    """Listen to no notice."""


def test_a_server_that_never_says_who_it_is_is_given_up_at_the_time_limit(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # the kernel takes connections, and nobody ever reads them
        job = replace(
            JOB,
            study=on(f"prod=http://127.0.0.1:{silent.getsockname()[1]}/v1"),
            budget=JobBudget(minutes=0.005),
        )
        done = execute(job, tmp_path / "watch.duckdb", notice=unheard)
    (kept,) = history(tmp_path / "watch.duckdb", "nightly")
    assert (kept.outcome, kept.detail.reason, done.code) == (
        "failed",
        "time limit of 0.005 minutes",
        1,
    )
    assert kept == done.execution


def test_what_a_server_wrote_into_its_log_is_repeated_word_by_word(tmp_path: Path) -> None:
    arms, said = tmp_path / "arms.yaml", "unknown --seed 3, leave out --duration 5"
    launch = shlex.join(("sh", "-c", f"echo {said}; exit 1"))
    arm = {"url": "http://127.0.0.1:9/v1", "model": "m", "launch": launch}
    arms.write_text(json.dumps({"arms": {"bf16": arm}}), encoding="utf-8")
    study = extend(STUDY, endpoints=str(arms), launch=True, logs=str(tmp_path / "logs"))
    done = execute(replace(JOB, study=study), tmp_path / "watch.duckdb", notice=unheard)
    assert (tmp_path / "logs/start-001/bf16.log").read_text().strip() == said
    assert done.execution.outcome == "failed"
    assert (done.execution.detail.reason or "").endswith(said)


def test_a_mistake_in_the_arms_file_is_a_failure_of_ours_and_no_dead_endpoint(
    tmp_path: Path,
) -> None:
    (tmp_path / "arms.yaml").write_text("arms: {prod: {urll: http://127.0.0.1:1/v1}}\n")
    done = execute(
        replace(JOB, study=on(str(tmp_path / "arms.yaml"))),
        tmp_path / "watch.duckdb",
        notice=unheard,
    )
    assert (done.execution.outcome, done.code, done.raised) == ("failed", 1, ())
    assert "unknown field 'urll'" in (done.execution.detail.reason or "")


def test_what_a_run_cost_is_kept_though_it_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play.Playthrough(arms=("prod",), outcome="done", usd=0.5)

    def refused(*_: object, **__: object) -> None:
        raise StoreError("watch.duckdb: kept open")

    monkeypatch.setattr("agentload.watch.execute.play", lambda *_, **__: played)
    monkeypatch.setattr("agentload.watch.execute.facts", refused)
    done = execute(JOB, tmp_path / "watch.duckdb", notice=unheard).execution
    assert (done.outcome, done.detail.reason, done.detail.usd) == (
        "failed",
        "watch.duckdb: kept open",
        0.5,
    )


def test_old_runs_that_cannot_be_deleted_now_cost_no_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path, **__: float) -> None:
        raise StoreError("watch.duckdb: kept open")

    monkeypatch.setattr("agentload.watch.books.writing", refused)
    past, heard = recorded(0.0, 0.01, 0.0), list[str]()
    job, database = replace(JOB, keep_runs=2), tmp_path / "watch.duckdb"
    done = Books(job=job, database=database, notice=heard.append).conclude(past[-1], past[:-1])
    assert (done.code, heard) == (
        0,
        ["old runs are kept until the next execution: watch.duckdb: kept open"],
    )


def test_a_database_that_cannot_be_asked_for_the_alarms_of_before_costs_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise StoreError("watch.duckdb: process 7 has been writing it for 60 s")

    monkeypatch.setattr(ledger, "stored_alarms", refused)
    monkeypatch.setattr(ledger, "bring_in", lambda *_: "watch.duckdb: kept open")
    past, heard = recorded(*QUIET, 0.08, 0.075), list[str]()
    books = Books(job=JOB, database=tmp_path / "watch.duckdb", notice=heard.append)
    told = [books.conclude(past[day], past[:day]) for day in (11, 12)]
    assert [([each.kind for each in done.raised], done.code) for done in told] == [
        (["regression"], 3),
        ([], 3),
    ]
    monkeypatch.undo()
    assert ledger.bring_in(tmp_path / "watch.duckdb", "nightly") is None  # the journal has them
    assert ledger.stored_alarms(tmp_path / "watch.duckdb", "nightly") == told[-1].alarms


@pytest.mark.slow
def test_arms_that_change_machines_are_asked_on_the_machine_that_is_stored(tmp_path: Path) -> None:
    database = tmp_path / "watch.duckdb"
    swapped = extend(on("emulated:gpt-oss-20b-h100/bf16+fp8"), pairs=4, swap=True)
    done = execute(
        replace(JOB, study=swapped, budget=JobBudget(calls=24, minutes=2)), database, notice=unheard
    ).execution
    assert done.outcome in PLAYED, done.detail.reason
    with reading(database) as connection:
        where = connection.execute(
            "SELECT DISTINCT leg, arm, machine FROM blocks ORDER BY leg, arm"
        ).fetchall()
    assert where == [(1, "bf16", "m1"), (1, "fp8", "m2"), (2, "bf16", "m2"), (2, "fp8", "m1")]


def priced(folder: Path, url: str) -> str:
    arms = folder / "arms.yaml"
    arms.write_text(f"arms: {{prod: {{url: {url}, price_per_hour: 3.6, gpus: 2}}}}\n")
    return str(arms)


@pytest.mark.slow
def test_a_server_that_hangs_in_its_answers_is_given_up_at_the_cost_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentload.watch.play.Audience", partial(Audience, ending_s=0.5))
    with start(
        arms_of("gpt-oss-20b-h100", ["bf16"]), ServerOptions(faults="faults: [{kind: stall}]")
    ) as servers:
        # 7.2 USD an hour: 3 s are 0.6 cents.
        job = replace(
            JOB,
            study=on(priced(tmp_path, servers.urls["bf16"])),
            budget=JobBudget(calls=12, minutes=5, usd=0.006),
        )
        before_s = time.monotonic()
        done = execute(job, tmp_path / "watch.duckdb", notice=unheard)
        took_s = time.monotonic() - before_s
    (kept,) = history(tmp_path / "watch.duckdb", "nightly")
    assert (kept.outcome, kept.detail.reason, done.code) == (
        "failed",
        "cost limit of 0.006 USD, at 7.2 USD an hour",
        1,
    )
    assert kept.detail.usd is not None
    assert 0.006 <= kept.detail.usd <= 7.2 * took_s / 3600
    assert took_s < 60
    with reading(tmp_path / "watch.duckdb") as connection:
        statuses = connection.execute(
            "SELECT DISTINCT status FROM calls_row WHERE status <> 'ok'"
        ).fetchall()
    assert ("stopped",) in statuses


def runs_of(database: Path) -> set[str]:
    with reading(database) as connection:
        return {
            run
            for (run,) in connection.execute(
                "SELECT run_id FROM runs UNION SELECT run_id FROM calls_row"
            ).fetchall()
        }


@contextmanager
def neighbour(url: str, model: str) -> Iterator[None]:
    """Have somebody else ask a server short questions all the time."""
    is_over = Event()
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    ).encode()
    asked = Request(
        f"{url}/chat/completions", data=body, headers={"Content-Type": "application/json"}
    )

    def ask() -> None:
        while not is_over.wait(0.02):
            with suppress(OSError), urlopen(asked, timeout=10) as answer:
                answer.read()

    thread = Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_a_server_that_a_neighbour_uses_all_the_time_makes_a_run_invalid_and_is_not_dead(
    tmp_path: Path,
) -> None:
    (arm,) = arms_of("gpt-oss-20b-h100", ["bf16"])
    with start([arm]) as servers, neighbour(servers.urls["bf16"], arm.model.name):
        job = replace(JOB, study=on(f"prod={servers.urls['bf16']}"))
        done = execute(job, tmp_path / "watch.duckdb", notice=unheard)
    said = "3 pairs in a row were invalid, for one reason: prod answered"
    assert (
        done.execution.outcome,
        (done.execution.detail.reason or "")[: len(said)],
        done.code,
    ) == ("void", said, 3)
    assert not done.raised


@pytest.mark.slow
def test_retention_deletes_runs_and_their_files_and_keeps_the_reference_and_the_history(
    tmp_path: Path,
) -> None:
    database = tmp_path / "watch.duckdb"
    job = replace(JOB, keep_runs=2)
    ended: list[Execution] = [execute(job, database, notice=unheard).execution for _ in range(5)]
    assert {each.outcome for each in ended} <= PLAYED, [each.detail.reason for each in ended]
    runs = [each.run_id for each in ended if each.run_id is not None]
    reference = next((each.run_id for each in ended if each.outcome == "done"), None)
    kept = {*runs[-2:], *([reference] if reference else [])}
    assert runs_of(database) == kept
    assert {run for run in runs if journal_folder(database, run).exists()} == kept
    assert [each.run_id for each in history(database, "nightly")] == runs


@pytest.mark.slow
@pytest.mark.alone
def test_several_arms_are_each_held_against_their_own_past_and_decided_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (
        "MAX_SEND_LAG_MS",
        "MAX_STALL_MS",
        "MAX_COALESCED_SHARE",
        "MAX_DROPPED_SHARE",
    ):  # what a busy machine does is no subject here
        monkeypatch.setattr(health, limit, 1e6)
    database = tmp_path / "watch.duckdb"
    job = replace(
        JOB,
        study=on("emulated:gpt-oss-20b-h100/bf16+fp8"),
        budget=JobBudget(calls=24, minutes=2),
        control=True,
        setting=LENIENT,
    )
    for _ in range(
        6
    ):  # until a run is quiet enough to be the reference, and another is held against it
        last = execute(job, database, notice=unheard).execution
        assert last.outcome in PLAYED, last.detail.reason
        assert last.detail.headline
        if last.detail.changes:
            break
    found = {(each.arm, each.metric): each for each in last.detail.changes}
    assert {arm for arm, _ in found} == {"bf16", "fp8"}
    assert all(
        each.floor is not None for each in found.values()
    )  # the reference was played against itself
    assert set(last.detail.facts) == {"bf16", "fp8", "agentload"}
    with reading(database) as connection:
        stored = connection.execute(
            "SELECT count(*) FROM verdicts WHERE run_id = ?", [last.run_id]
        ).fetchone()
    assert stored == (1,)
