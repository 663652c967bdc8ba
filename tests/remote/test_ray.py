"""Three nodes of Ray on loopback addresses, each with one
core to give, one with a clock of its own: `make test-ray`.
"""

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
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from agentload.model.rows import BlockRow, CallRow, LegRow, Row
from agentload.remote.kuberay import HOME
from agentload.store import journal
from agentload.store.places import journals
from agentload.tracefile import write
from tests.cores import cores
from tests.remote.fleet import facts, order, simulated, traced

pytestmark = [
    pytest.mark.ray,
    pytest.mark.loopback,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'agentload[ray]'",
    ),
]
BOUND_S = 600.0
"""A bound on whatever is waited for: a run of these
takes three minutes beside a dozen of busy processes.
"""
NODES = 3
TRIES = 3
SKEWED, KILLED = 1, 2
"""Nodes by their place: one has a clock of its own, one does not live long."""
HOUR_NS = 3_600_000_000_000
Words = tuple[str, ...]
TOOLS = Path(sys.executable).parent
AHEAD = ("unshare", "--time", "--monotonic", "3600", "--fork", "--kill-child")
"""A process in a namespace whose monotonic clock is an hour
ahead, where the kernel and our rights let us have one.
"""


class Cluster:
    """Nodes that this process starts, and ends by their pids;
    what they start has the cluster's folder in its environment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.address = f"127.0.0.2:{_free_port()}"
        self.is_skewed = (
            subprocess.run([*AHEAD, "true"], capture_output=True, check=False).returncode == 0
        )

    def start(self) -> None:
        """Start the nodes that are not there, one after the other: side
        by side they take each other's ports. Some tries are allowed.
        """
        for number in range(NODES):
            tries = 0
            while number not in self._nodes or self._nodes[number].poll() is not None:
                tries += 1
                assert tries <= TRIES, self._log(number).read_text()
                self._start(number)

    def _start(self, number: int) -> None:
        """Start a node, and wait until it is part of the cluster or has ended."""
        own = f"127.0.0.{2 + number}"
        head = (
            "--head",
            "--port",
            self.address.partition(":")[2],
            "--include-dashboard",
            "false",
            "--temp-dir",
            str(self._folder),
        )
        client = ("--ray-client-server-port", str(_free_port()))
        small = (
            "--num-cpus",
            "1",
            "--num-gpus",
            "0",
            "--object-store-memory",
            "100000000",
            "--disable-usage-stats",
        )
        place = (*head, *client) if number == 0 else ("--address", self.address)
        words = [
            str(TOOLS / "ray"),
            "start",
            "--block",
            "--node-ip-address",
            own,
            "--include-log-monitor",
            "false",
            *place,
            *small,
        ]
        if number == SKEWED and self.is_skewed:
            words = [*AHEAD, *words]
        with self._log(number).open("wb") as said:
            self._nodes[number] = subprocess.Popen(
                words,
                env=environment(CLUSTER=str(self._folder), TMPDIR=str(self._folder)),
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        _until(
            lambda: (
                b"Ray runtime started" in self._log(number).read_bytes()
                or self._nodes[number].poll() is not None
            )
        )

    def _log(self, number: int) -> Path:
        return self._folder / f"node{number}.log"

    def processes(self, of: str) -> list[int]:
        """Return the processes of this cluster whose command line has these words."""
        return [
            pid
            for pid in _of_environment(f"CLUSTER={self._folder}")
            if of in _told(pid, "cmdline").replace("\0", " ")
        ]

    def calls(self) -> list[CallRow]:
        """Return the calls of a run without a shared folder that its nodes wrote down so far."""
        return played(self._folder)

    def kill(self, number: int) -> None:
        """Kill a node; its raylet dies with it, and so does what that started."""
        node = self._nodes.pop(number)
        node.kill()
        node.wait()

    def close(self) -> None:
        """Kill all nodes, and what outlives them."""
        for number in sorted(self._nodes, reverse=True):
            self.kill(number)
        for pid in _of_environment(f"CLUSTER={self._folder}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _of_environment(word: str) -> list[int]:
    return [
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if word in _told(int(place.name), "environ").split("\0")
    ]


def _told(pid: int, what: str) -> str:
    """Read what the kernel tells of a process: nothing of one that is gone, or somebody else's."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def environment(**own: str) -> dict[str, str]:
    """Return an environment for a small cluster: no worker starts
    before it is asked for, a node that is gone is missed in seconds.
    """
    ray = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "1000",
    }
    return {
        **os.environ,
        **ray,
        **own,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # sockets in it have short names
    made = Cluster(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes(cluster: Cluster) -> Cluster:
    """Give the cluster with all its nodes, also after a test that has killed one."""
    cluster.start()
    return cluster


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Emulate two arms; give their URLs as `--endpoints` takes them."""
    said = tmp_path_factory.mktemp("servers") / "said"
    words = [
        sys.executable,
        "-m",
        "agentload",
        "emulate",
        "llama-3.1-8b-h100",
        "--port",
        "0",
        "--noise",
        "off",
        "--for",
        "1500",
    ]
    with (
        said.open("wb") as log,
        subprocess.Popen(words, env=environment(), stdout=log, stderr=log) as running,
    ):

        def urls() -> list[tuple[str, str]]:
            assert running.poll() is None, said.read_text()
            return re.findall(r"(bf16|fp8)\S*\s+(http://127\S+)", said.read_text())

        try:
            _until(lambda: len(urls()) == 2)
            yield ",".join(f"{arm}={url}" for arm, url in urls())
        finally:
            running.terminate()


@pytest.fixture
def replay(servers: str, tmp_path: Path) -> Words:
    """The words of a replay of some seconds."""
    write(tmp_path / "trace.jsonl", traced(12, wait_s=1.0))
    return (
        "replay",
        str(tmp_path / "trace.jsonl"),
        "--endpoints",
        servers,
        "--run-id",
        "r",
        "--pairs",
        "1",
    )


def agentload(
    folder: Path,
    *words: str,
    expected: int = 0,
    during: Callable[[], None] = lambda: None,
    address: str | None = None,
) -> str:
    """Run a verb in a folder, and do something meanwhile; return what it printed.

    Ray's *address* goes where its operator puts it.
    """
    command = [sys.executable, "-m", "agentload", *words]
    env = environment() if address is None else environment(RAY_ADDRESS=address)
    with subprocess.Popen(
        command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            during()
            said, _ = running.communicate(timeout=BOUND_S)
        finally:
            running.kill()
    assert running.returncode == expected, said
    return said


def rows(folder: Path) -> list[Row]:
    return [
        row for path in journals(folder / "agentload.duckdb", "r") for row in journal.read(path)
    ]


def calls(folder: Path) -> list[CallRow]:
    return [row for row in rows(folder) if isinstance(row, CallRow)]


def played(folder: Path) -> list[CallRow]:
    """Return the calls that nodes wrote down so far, on their own clocks."""
    found = [
        row
        for path in folder.rglob("leg*-node*.journal")
        for row in journal.read(path, followed=True)
    ]
    return [row for row in found if isinstance(row, CallRow)]


def test_the_merged_run_has_the_calls_order_counts_and_statuses_of_one_process(
    nodes: Cluster, replay: Words, tmp_path: Path
) -> None:
    alone, apart, shards = tmp_path / "alone", tmp_path / "apart", tmp_path / "shards"
    for folder, on in (
        (alone, ()),
        (apart, ("--on", f"ray:{nodes.address}", "--share", str(shards))),
    ):
        folder.mkdir()
        agentload(folder, *replay, *on)
    one, many = calls(alone), calls(apart)
    assert facts(many) == facts(one)
    assert len(many) == len(one) == 88
    assert order(many) == order(one)
    assert {row.status for row in many} == {"ok"}
    assert {row.stamp_source for row in many} == {row.stamp_source for row in one}
    began_ns = next(row.monotonic_ns for row in rows(apart) if isinstance(row, LegRow))
    assert all(abs(row.released_ns - began_ns) < HOUR_NS / 2 for row in many)
    elsewhen = [row for row in played(shards) if row.released_ns - began_ns > HOUR_NS / 2]
    assert bool(elsewhen) == nodes.is_skewed
    assert len(elsewhen) < len(many)


def test_a_node_that_stands_still_makes_its_block_invalid_and_is_named(
    nodes: Cluster, replay: Words, tmp_path: Path
) -> None:
    before = len(nodes.calls())

    def held() -> None:
        _until(lambda: len(nodes.calls()) > before)
        node, *_ = nodes.processes("agentload.live.workers.process")
        os.kill(node, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(node, signal.SIGCONT)

    said = agentload(tmp_path, *replay, "--on", f"ray:{nodes.address}", "--nodes", "2", during=held)
    assert "timings are invalid" in said
    doubts = [
        row.void for row in rows(tmp_path) if isinstance(row, BlockRow) and row.void is not None
    ]
    assert any(re.match(r"node \d \(", each) for each in doubts)
    assert len(calls(tmp_path)) == 88


def test_the_entry_point_of_the_rayjob_runs_as_it_is_written(
    nodes: Cluster, replay: Words, tmp_path: Path
) -> None:
    job = (
        "--on",
        "ray",
        "--nodes",
        "2",
        "--share",
        f"{HOME}/shards",
        "--print",
        "kuberay",
        "--image",
        "i",
    )
    manifest = yaml.safe_load(agentload(tmp_path, *replay, *job))
    program, *entry = shlex.split(manifest["spec"]["entrypoint"])
    assert program == "agentload"
    # Only the folder that all pods see is another one here.
    here = [word.replace(HOME, str(tmp_path)) for word in entry]
    assert {f"{tmp_path}/shards", f"{tmp_path}/agentload.duckdb"} <= set(here)
    agentload(tmp_path, *here, "--run-id", "r", address=nodes.address)
    assert len(calls(tmp_path)) == 88


def test_simulations_on_nodes_are_equal_to_those_here(nodes: Cluster) -> None:
    with cores(f"ray:{nodes.address}") as pool:
        assert list(pool.map(simulated, range(3))) == [simulated(seed) for seed in range(3)]
        with pytest.raises(ValueError, match="invalid literal"):
            pool.submit(int, "x").result(timeout=BOUND_S)


def test_more_nodes_than_there_are_is_said(nodes: Cluster, replay: Words, tmp_path: Path) -> None:
    said = agentload(tmp_path, *replay, "--on", f"ray:{nodes.address}", "--nodes", "9", expected=1)
    assert "the cluster has 3 nodes with a core to give, not 9" in said


def test_no_cluster_is_said(replay: Words, tmp_path: Path) -> None:
    said = agentload(tmp_path, *replay, "--on", f"ray:127.0.0.1:{_free_port()}", expected=1)
    assert "no Ray cluster at 127.0.0.1" in said


def test_a_node_that_is_killed_ends_the_run_which_resumes_on_the_others_and_counts_nothing_twice(
    nodes: Cluster, replay: Words, tmp_path: Path
) -> None:
    before = len(nodes.calls())

    def killed() -> None:
        _until(lambda: len(nodes.calls()) > before)
        nodes.kill(KILLED)

    write(
        tmp_path / "trace.jsonl", traced(12, wait_s=5.0)
    )  # long enough to be killed in the middle of a block
    words = [*replay, "--on", f"ray:{nodes.address}"]
    said = agentload(tmp_path, *words, expected=1, during=killed)
    assert re.search(r"node \d.* is lost", said)
    assert "--resume r" in said
    lost = [row for row in rows(tmp_path) if isinstance(row, BlockRow)]
    assert [row.void is not None and "is lost" in row.void for row in lost[-1:]] == [True]
    words[words.index("--run-id")] = "--resume"
    agentload(tmp_path, *words)
    found = calls(tmp_path)
    assert len({row.request_id for row in found}) == len(found)
    whole = [
        row
        for row in rows(tmp_path)
        if isinstance(row, BlockRow) and "is lost" not in (row.void or "")
    ]
    assert {row.arm for row in whole} == {"bf16", "fp8"}
    turns = [(row.arm, row.pair, row.session, row.turn) for row in found if row.leg == 2]
    assert len(set(turns)) == len(turns)
