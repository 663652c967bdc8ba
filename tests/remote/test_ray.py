"""Three nodes of Ray on loopback addresses, each with one core to give: `make test-ray`."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agentload.model.rows import BlockRow, CallRow, LegRow, Row
from agentload.store import journal
from agentload.store.places import journals
from agentload.tracefile import write
from tests.remote.fleet import facts, order, traced

pytestmark = [
    pytest.mark.ray,
    pytest.mark.loopback,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'agentload[ray]'"),
]
START_S = 600.0
BOUND_S = 900.0
NODES = 3
MINUTE_NS = 60_000_000_000
Words = tuple[str, ...]
TOOLS = Path(sys.executable).parent


class Cluster:
    """Nodes that this process started, and ends by their pids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.2:{_free_port()}"

    def start(self) -> None:
        """Start one more node, with an address of its own; wait until it is part of the cluster."""
        number = len(self.nodes)
        own = f"127.0.0.{2 + number}"
        head = ("--head", "--port", self.address.partition(":")[2], "--include-dashboard", "false", "--temp-dir", str(self._folder))
        client = ("--ray-client-server-port", str(_free_port()))
        small = ("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "100000000", "--disable-usage-stats")
        place = (*head, *client) if number == 0 else ("--address", self.address)
        log = self._folder / f"node{number}.log"
        with log.open("wb") as said:
            words = [str(TOOLS / "ray"), "start", "--block", "--node-ip-address", own, "--include-log-monitor", "false", *place, *small]
            self.nodes.append(subprocess.Popen(words, env=environment(), stdout=said, stderr=said, start_new_session=True))
        until_s = time.monotonic() + START_S
        while b"Ray runtime started" not in log.read_bytes():
            assert self.nodes[-1].poll() is None, log.read_text()
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.2)

    def end(self, number: int, *, how: signal.Signals = signal.SIGTERM) -> None:
        """End a node; what it started dies with it."""
        node = self.nodes[number]
        if node.poll() is None:
            node.send_signal(how)
            try:
                node.wait(30)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    own = {"PYTHONPATH": str(Path(__file__).parents[2]), "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}
    return {**os.environ, **own, "PATH": f"{TOOLS}:{os.environ['PATH']}"}


@contextmanager
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # sockets in it have short names
    made = Cluster(folder)
    try:
        for _ in range(NODES):
            made.start()
        yield made
    finally:
        for number in reversed(range(len(made.nodes))):
            made.end(number)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Emulate two arms; give their URLs as `--endpoints` takes them."""
    said = tmp_path_factory.mktemp("servers") / "said"
    words = [sys.executable, "-m", "agentload", "emulate", "llama-3.1-8b-h100", "--port", "0", "--noise", "off", "--for", "1500"]
    with said.open("wb") as log, subprocess.Popen(words, env=environment(), stdout=log, stderr=log) as running:
        try:
            until_s = time.monotonic() + START_S
            while len(found := re.findall(r"(bf16|fp8)\S*\s+(http://127\S+)", said.read_text())) < 2:
                assert time.monotonic() < until_s, said.read_text()
                assert running.poll() is None, said.read_text()
                time.sleep(0.2)
            yield ",".join(f"{arm}={url}" for arm, url in found)
        finally:
            running.terminate()


@pytest.fixture
def replay(servers: str, tmp_path: Path) -> Words:
    """The words of a replay of some seconds."""
    write(tmp_path / "trace.jsonl", traced(12, wait_s=1.0))
    return ("replay", str(tmp_path / "trace.jsonl"), "--endpoints", servers)


def agentload(folder: Path, *words: str, expected: int = 0, during: Callable[[], None] | None = None) -> str:
    """Run a verb in a folder, and do something meanwhile; return what it printed."""
    command = [sys.executable, "-m", "agentload", *words]
    with subprocess.Popen(command, env=environment(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            if during is not None:
                during()
            said, _ = running.communicate(timeout=BOUND_S)
        finally:
            if running.poll() is None:
                running.kill()
    assert running.returncode == expected, said
    return said


def rows(folder: Path, run: str) -> list[Row]:
    return [row for path in journals(folder / "agentload.duckdb", run) for row in journal.read(path)]


def calls(folder: Path, run: str) -> list[CallRow]:
    return [row for row in rows(folder, run) if isinstance(row, CallRow)]


def test_the_merged_run_has_the_calls_order_counts_and_statuses_of_one_process(nodes: Cluster, replay: Words, tmp_path: Path) -> None:
    alone, apart = tmp_path / "alone", tmp_path / "apart"
    for folder, on in ((alone, ()), (apart, ("--on", f"ray:{nodes.address}"))):
        folder.mkdir()
        agentload(folder, *replay, "--pairs", "1", "--run-id", "r", *on)
    one, many = calls(alone, "r"), calls(apart, "r")
    assert facts(many) == facts(one)
    assert len(many) == len(one) == 88
    assert order(many) == order(one)
    assert {row.status for row in many} == {"ok"}
    (leg,) = {row.leg: row for row in rows(apart, "r") if isinstance(row, LegRow)}.values()
    assert all(abs(row.released_ns - leg.monotonic_ns) < 10 * MINUTE_NS for row in many)
    assert {row.stamp_source for row in many} == {row.stamp_source for row in one}


def test_a_node_that_is_killed_ends_the_run_which_resumes_on_the_others_and_counts_nothing_twice(replay: Words, tmp_path: Path) -> None:
    with cluster() as made:

        def killed() -> None:
            until_s = time.monotonic() + START_S
            while not _played(tmp_path):
                assert time.monotonic() < until_s
                time.sleep(0.1)
            made.end(2, how=signal.SIGKILL)

        words = (*replay, "--pairs", "2", "--run-id", "r", "--share", str(tmp_path / "shards"))
        words = (*words, "--on", f"ray:{made.address}")
        said = agentload(tmp_path, *words, expected=1, during=killed)
        assert "node 3" in said
        assert "is lost" in said
        assert "--resume r" in said
        lost = [row for row in rows(tmp_path, "r") if isinstance(row, BlockRow)]
        assert [row.void is not None and "is lost" in row.void for row in lost[-1:]] == [True]
        again = [word for word in words if word not in ("--run-id", "r")]
        agentload(tmp_path, *again, "--resume", "r")
    found = calls(tmp_path, "r")
    assert len({row.request_id for row in found}) == len(found)
    blocks = [row for row in rows(tmp_path, "r") if isinstance(row, BlockRow)]
    played = {(row.pair, row.arm) for row in blocks if "is lost" not in (row.void or "")}
    assert played == {(pair, arm) for pair in range(2) for arm in ("bf16", "fp8")}
    whole = {(row.salt, row.arm) for row in blocks if "is lost" not in (row.void or "")}
    turns = [(row.arm, row.pair, row.session, row.turn) for row in found if row.leg == 2]
    assert len(set(turns)) == len(turns)
    assert len(whole) >= 4


def _played(folder: Path) -> bool:
    """Tell whether a node has written down calls of the run."""
    found = (folder / "shards").rglob("*.journal") if (folder / "shards").exists() else iter(())
    return any(isinstance(row, CallRow) for path in found for row in journal.read(path, followed=True))


def test_the_entry_point_of_the_rayjob_runs_as_it_is_written(nodes: Cluster, replay: Words, tmp_path: Path) -> None:
    said = agentload(
        tmp_path,
        *replay,
        "--pairs",
        "1",
        "--on",
        "ray",
        "--nodes",
        "2",
        "--share",
        str(tmp_path / "shards"),
        "--print",
        "kuberay",
        "--image",
        "i",
    )
    _, *entry = shlex.split(yaml.safe_load(said)["spec"]["entrypoint"])
    entry[entry.index("--db") + 1] = str(tmp_path / "agentload.duckdb")
    # The operator's submitter tells the command where the cluster is by this variable.
    os.environ["RAY_ADDRESS"] = nodes.address
    try:
        agentload(tmp_path, *entry, "--run-id", "job")
    finally:
        del os.environ["RAY_ADDRESS"]
    assert len(calls(tmp_path, "job")) == 88


def test_more_nodes_than_there_are_is_said(nodes: Cluster, replay: Words, tmp_path: Path) -> None:
    said = agentload(tmp_path, *replay, "--on", f"ray:{nodes.address}", "--nodes", "9", expected=1)
    assert "the cluster has 3 nodes with a core to give, not 9" in said


def test_no_cluster_is_said(replay: Words, tmp_path: Path) -> None:
    said = agentload(tmp_path, *replay, "--on", f"ray:127.0.0.1:{_free_port()}", expected=1)
    assert "no Ray cluster at 127.0.0.1" in said
