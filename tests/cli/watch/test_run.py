"""`watch run` on emulated servers: the reference,
a run against it, a lock, a kill, a dead endpoint.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from agentload.watch.history import Execution
from agentload.watch.ledger import history, lock
from tests.cli.verbs import agentload
from tests.cli.watch.jobs import AGENTLOAD, LENIENT, PATIENT, watch, watch_file

pytestmark = pytest.mark.loopback

CODES = {"done": 0, "void": 3}  # a busy machine may make figures void, and must say so


def last(folder: Path) -> Execution:
    return history(folder / "watch.duckdb", "nightly")[-1]


@pytest.mark.slow
@pytest.mark.alone
def test_a_second_run_is_held_against_the_first_turn_by_turn(tmp_path: Path) -> None:
    file = watch_file(tmp_path, notify={"junit": "out/junit.xml"}, policy=LENIENT)
    for _ in range(
        8
    ):  # until a run is quiet enough to be the reference, and another to be compared
        done = watch("run", "nightly", file=file, program=PATIENT)
        assert done.returncode == CODES[last(tmp_path).outcome], done.stdout + done.stderr
        if last(tmp_path).detail.changes:
            break
    past = [
        each for each in history(tmp_path / "watch.duckdb", "nightly") if each.outcome == "done"
    ]
    assert past[0].detail.reference is None
    assert past[-1].detail.reference == past[0].run_id
    assert {change.metric for change in past[-1].detail.changes} == {
        "turn_ms",
        "ttft_ms",
        "tpot_ms",
    }
    assert all(change.pairs == 3 for change in past[-1].detail.changes)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["junit.xml"]
    assert (
        json.loads(watch("history", "nightly", "--json", file=file).stdout)["executions"][-1][
            "run_id"
        ]
        == last(tmp_path).run_id
    )


@pytest.mark.slow
def test_an_endpoint_that_does_not_answer_is_an_alarm_and_exits_with_1(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        file = watch_file(tmp_path, endpoints=f"prod=http://127.0.0.1:{unused.getsockname()[1]}/v1")
        done = watch("run", "nightly", file=file)
    assert done.returncode == 1
    assert "raised: dead endpoint: " in done.stdout
    status = watch("status", "--json", file=file)
    (job,) = json.loads(status.stdout)
    assert (
        job["latest"]["outcome"],
        [each["kind"] for each in job["alarms"]],
        status.returncode,
    ) == ("dead", ["dead endpoint"], 3)


def test_while_an_execution_holds_the_lock_another_is_recorded_as_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = watch_file(tmp_path)
    with lock(tmp_path / "watch.duckdb", "nightly") as is_mine:
        assert is_mine
        agentload("watch run nightly", file=file)
    assert capsys.readouterr().out == "nightly: skipped: the execution before was still running\n"


@pytest.mark.slow
def test_a_killed_execution_leaves_a_readable_history_and_the_next_one_tells_of_it(
    tmp_path: Path,
) -> None:
    file = watch_file(tmp_path)
    running = subprocess.Popen(
        [*AGENTLOAD, "watch", "run", "nightly", "--file", str(file)], stdout=subprocess.DEVNULL
    )
    journal = tmp_path / "watch.journal"
    until_s = time.monotonic() + 120
    while not list(journal.glob("2*/*.journal")) and time.monotonic() < until_s:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    shown = watch("history", "nightly", file=file)
    assert (shown.returncode, shown.stderr) == (0, "")
    done = watch("run", "nightly", file=file)
    past = history(tmp_path / "watch.duckdb", "nightly")
    assert [each.outcome for each in past] == ["failed", last(tmp_path).outcome]
    assert past[0].detail.reason == "the process was killed"
    assert done.returncode == CODES[past[1].outcome], done.stdout + done.stderr


def test_a_scheduler_that_calls_when_nothing_is_due_gets_nothing_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload(
        "watch run nightly --scheduled", file=watch_file(tmp_path, schedule={"cron": "0 0 29 2 *"})
    )
    assert capsys.readouterr() == ("", "")
    assert history(tmp_path / "watch.duckdb", "nightly") == ()


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("faketime") is None, reason="no faketime here (Debian: apt-get install faketime)"
)
def test_an_execution_under_a_clock_ten_years_ahead_does_not_keep_the_next_from_its_firing(
    tmp_path: Path,
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"prod=http://127.0.0.1:{unused.getsockname()[1]}/v1"
        file = watch_file(tmp_path, endpoints=dead, schedule={"cron": "* * * * *"})
        ahead = watch(
            "run",
            "nightly",
            file=file,
            program=("faketime", "-m", "--exclude-monotonic", "-f", "+3650d", *AGENTLOAD),
        )
        now = watch("run", "nightly", "--scheduled", file=file)
    assert (ahead.returncode, now.returncode) == (1, 1), ahead.stderr + now.stderr
    earlier, later = sorted(
        each.started_ns for each in history(tmp_path / "watch.duckdb", "nightly")
    )
    assert later - earlier > 3640 * 86_400 * 10**9
