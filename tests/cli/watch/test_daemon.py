"""`watch daemon` as a container runs it: it says when each
job is due, executes them, and ends cleanly on SIGTERM.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from agentload.watch.ledger import history
from tests.cli.watch.jobs import AGENTLOAD, watch_file

pytestmark = [pytest.mark.slow, pytest.mark.loopback]


def test_two_jobs_fall_due_and_sigterm_ends_the_daemon_cleanly(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"prod=http://127.0.0.1:{unused.getsockname()[1]}/v1"
        file = watch_file(tmp_path, endpoints=gone, schedule={"cron": "* * * * *"})
        jobs = yaml.safe_load(file.read_text())["jobs"]
        file.write_text(yaml.safe_dump({"jobs": {"one": jobs["nightly"], "two": jobs["nightly"]}}))
        with subprocess.Popen(
            [*AGENTLOAD, "watch", "daemon", "--file", str(file)], stdout=subprocess.PIPE, text=True
        ) as daemon:
            late = threading.Timer(
                120, daemon.kill
            )  # a minute until both are due, and the start of two processes on a busy machine
            late.start()
            assert daemon.stdout is not None
            assert [daemon.stdout.readline().partition(": next at ")[0] for _ in range(2)] == [
                "one",
                "two",
            ]
            waited_for = {"one: exit code 1\n", "two: exit code 1\n"}
            while waited_for and (line := daemon.stdout.readline()):
                waited_for.discard(line)
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
            late.cancel()
    assert waited_for == set()
    assert daemon.returncode == 0
    for name in ("one", "two"):
        first = history(tmp_path / "watch.duckdb", name)[0]
        assert first.outcome == "dead"
        assert first.due_ns is not None
        assert first.started_ns - first.due_ns < 60_000_000_000
