"""A replay whose sockets and journals are held by two other processes, through every way to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
import pytest

from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.store.places import journalled_runs, journals
from tests.cli.test_replay import (
    AGENTLOAD,
    agentload,
    assert_whole,
    endpoints,
    traced,
    wait_for_blocks,
)
from tests.conftest import Spawn

pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(
        arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(noise=False, speed=50.0)
    ) as running:
        yield running


@pytest.fixture
def command(servers: Servers, tmp_path: Path) -> list[str]:
    trace = traced(tmp_path / "t.jsonl", wait_s=0.6)
    return [
        "replay",
        str(trace),
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "3",
        "--workers",
        "2",
    ]


def test_workers_store_what_one_process_stores_and_the_leg_says_how_each_kept_up(
    command: list[str], tmp_path: Path
) -> None:
    done = agentload(*command, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = journalled_runs(tmp_path / "x.duckdb")
    assert [path.name for path in journals(tmp_path / "x.duckdb", run)] == [
        "leg001-1.journal",
        "leg001-2.journal",
        "leg001.journal",
        "verdicts.journal",
    ]
    assert_whole(tmp_path, run)
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        ((study, health),) = database.execute(
            "SELECT study, health FROM runs JOIN legs USING (run_id)"
        ).fetchall()
    assert msgspec.json.decode(study)["workers"] == 2
    assert [each["calls"] for each in msgspec.json.decode(health)["workers"]] == [
        12,
        12,
    ]  # sessions are dealt out evenly


def test_a_worker_that_is_killed_ends_the_run_at_once_and_resume_plays_the_rest(
    command: list[str], tmp_path: Path, spawn: Spawn
) -> None:
    running = begun(command, tmp_path, spawn)
    os.kill(workers_of(running.pid)[1], signal.SIGKILL)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 1, stderr
    run = re.search(r"--resume (\S+)", stderr)
    assert run is not None, stderr
    assert (
        "error: worker 2 was killed by signal 9: the block pair being played is lost, what "
        "was finished is kept\n"
    ) in stderr
    assert "Traceback" not in stderr
    resumed = agentload(*command, "--resume", run[1], cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert_whole(tmp_path, run[1])
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        assert database.execute("SELECT status FROM legs ORDER BY leg").fetchall() == [
            ("failed",),
            ("done",),
        ]


def test_workers_end_by_themselves_when_the_dispatcher_is_killed(
    command: list[str], tmp_path: Path, spawn: Spawn
) -> None:
    running = begun(command, tmp_path, spawn)
    workers = workers_of(running.pid)
    running.kill()
    running.communicate(timeout=60)
    until = time.monotonic() + 60
    while any(is_alive(pid) for pid in workers) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(is_alive(pid) for pid in workers)
    (run,) = journalled_runs(tmp_path / "x.duckdb")
    resumed = agentload(*command, "--resume", run, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert_whole(tmp_path, run)


def test_ctrl_c_lets_what_workers_have_in_flight_come_to_its_end(
    command: list[str], tmp_path: Path, spawn: Spawn
) -> None:
    running = begun(command, tmp_path, spawn)
    for pid in workers_of(running.pid):
        os.kill(pid, signal.SIGTERM)  # as systemd does, which stops all of a control group
    os.killpg(
        running.pid, signal.SIGINT
    )  # as a terminal does: everybody in the foreground group gets it
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        assert database.execute("SELECT DISTINCT status FROM calls").fetchall() == [("ok",)]
        assert database.execute("SELECT status FROM legs").fetchall() == [("stopped",)]


def begun(command: list[str], folder: Path, spawn: Spawn) -> subprocess.Popen[str]:
    """Play until three blocks are finished."""
    running = spawn([*AGENTLOAD, *command], folder)
    wait_for_blocks(folder, 3)
    return running


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"agentload.live.workers" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
