"""Killed twenty times at random moments, a run still has every call once."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from random import Random

import duckdb
import msgspec
import pytest

from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.store.places import journalled_runs
from tests.cli.test_replay import AGENTLOAD, traced

pytestmark = [pytest.mark.loopback, pytest.mark.slow]

KILLS = 20
PAIRS = 12


@pytest.mark.parametrize("workers", [1, 2])
def test_twenty_kills_at_random_moments_lose_no_call_that_was_complete_a_second_before(workers: int, tmp_path: Path) -> None:
    trace = traced(tmp_path / "t.jsonl", wait_s=0.7)
    database, truth = tmp_path / "x.duckdb", tmp_path / "truth.jsonl"
    rng = Random(20)
    kills_ns: list[int] = []
    with start(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), noise=False, speed=20.0, truth=truth) as servers:
        both = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        command = [*AGENTLOAD, "replay", str(trace), "--endpoints", both, "--db", str(database), "--pairs", str(PAIRS)]
        command += ["--workers", str(workers)]
        for _ in range(KILLS):
            known = journalled_runs(database)
            running = subprocess.Popen(
                [*command, *(["--resume", known[0]] if known else [])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until_s = time.monotonic() + 60
            while not journalled_runs(database) and running.poll() is None and time.monotonic() < until_s:
                time.sleep(0.05)  # the first is to begin a run, however long it takes to start
            try:
                running.wait(rng.uniform(0.8, 4.0))
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
                kills_ns.append(time.monotonic_ns())
        (run,) = journalled_runs(database)
        done = subprocess.run([*command, "--resume", run], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
    assert len(kills_ns) >= KILLS // 2
    with duckdb.connect(str(database), read_only=True) as connection:
        stored = [name for (name,) in connection.execute("SELECT request_id FROM calls_row").fetchall()]
        pairs = connection.execute("SELECT pair FROM blocks WHERE void IS NULL GROUP BY pair, salt HAVING count(DISTINCT arm) = 2")
        assert sorted(pair for (pair,) in pairs.fetchall()) == list(range(PAIRS))
    assert len(stored) == len(set(stored))
    answers = answered(tmp_path)
    assert len(answers) >= PAIRS * 2 * 2
    lost = [name for name, ended_ns in answers if name not in set(stored) and not any(0 < kill - ended_ns < 10**9 for kill in kills_ns)]
    assert lost == []


def answered(folder: Path) -> list[tuple[str, int]]:
    """Return what the servers know of the answers they wrote whole: the request, and when its last byte had left."""
    out = []
    for path in folder.glob("truth-*.jsonl"):
        for line in path.read_bytes().splitlines():
            entry = msgspec.json.decode(line)
            if entry.get("end") == "done":
                out.append((entry["request_id"], entry["ended_ns"]))
    return out
