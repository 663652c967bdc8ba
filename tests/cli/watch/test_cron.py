"""A real cron daemon executes an installed job within
the next minute, and an uninstalled one never again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentload.watch.history import Execution
from agentload.watch.ledger import history
from agentload.watch.schedulers import read_crontab, write_crontab
from tests.cli.watch.jobs import AGENTLOAD, watch_file

pytestmark = pytest.mark.cron

MINUTE_NS = 60_000_000_000


@contextmanager
def daemon() -> Iterator[None]:
    """Run cron for as long as the test lasts, unless it runs already."""
    process = subprocess.Popen(["cron", "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(1)
    assert process.poll() is None or b"can't lock" in process.communicate()[1]
    try:
        yield
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def kept_crontab() -> Iterator[str]:
    """Give back the user's crontab as it was."""
    before = read_crontab()
    try:
        yield before
    finally:
        write_crontab(before)


def finished(database: Path, *, within_s: float) -> tuple[Execution, ...]:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        past = history(database, "each-minute")
        if past and past[-1].ended_ns is not None:
            return past
        time.sleep(1)
    raise AssertionError(f"nothing was executed within {within_s:.0f} s")


@pytest.mark.skipif(
    shutil.which("cron") is None or shutil.which("crontab") is None,
    reason="no cron here (Debian: apt-get install cron)",
)
@pytest.mark.skipif(os.getuid() != 0, reason="only root may start a cron daemon")
def test_an_installed_job_is_executed_within_a_minute_by_cron_itself(tmp_path: Path) -> None:
    file = watch_file(tmp_path, name="each-minute", schedule={"cron": "* * * * *"})
    with kept_crontab() as before, daemon():
        installed_ns = time.time_ns()
        subprocess.run(
            [*AGENTLOAD, "watch", "install", "--file", str(file)], check=True, timeout=30
        )
        try:
            # A minute until it fires, and the time that a short run takes on a busy machine.
            first = finished(tmp_path / "watch.duckdb", within_s=150)[0]
        finally:
            subprocess.run(
                [*AGENTLOAD, "watch", "install", "--remove", "--file", str(file)],
                check=True,
                timeout=30,
            )
        assert read_crontab() == before
        assert first.due_ns is not None
        assert first.started_ns - installed_ns < 90_000_000_000
        assert first.started_ns - first.due_ns < MINUTE_NS
        assert first.outcome in {"done", "void"}, (
            first.detail.reason
        )  # void: played, on a machine too busy for its timings
        log = (tmp_path / "watch.journal" / "watch-each-minute.log").read_text()
        assert log.startswith(f"each-minute: {first.outcome}")
