"""Whoever ends a verb from outside, as systemd and a
closed terminal do, leaves no server of ours behind.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_main import AGENTLOAD

pytestmark = [pytest.mark.loopback, pytest.mark.slow]

SERVER = (
    "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); "
    "time.sleep(30)"
)


def has_ended(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture(autouse=True)
def unignored() -> Iterator[None]:
    """Under `nohup` a verb stays as it is, and so would these."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_is_ended_ends_the_server_that_it_was_starting(
    tmp_path: Path, number: signal.Signals
) -> None:
    mark = tmp_path / "server.pid"
    arms = {
        "a": {"url": "http://127.0.0.1:9/v1", "launch": [sys.executable, "-c", SERVER, str(mark)]}
    }
    (tmp_path / "arms.yaml").write_text(json.dumps({"arms": arms}))
    command = [*AGENTLOAD, "replay", "demo-rag", "--launch", "--endpoints", "arms.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as running:
        for _ in range(1000):
            if mark.exists() and mark.read_text():
                break
            time.sleep(0.01)
        running.send_signal(number)
        assert running.wait(10) == 130
    assert has_ended(mark.read_text())
