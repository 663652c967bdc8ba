"""Arms that change machines half way, against servers
behind sockets, one "machine" being 8% slower.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest

from advisor.assess.speed import speeds
from advisor.policy import Policy
from agentload.emulator.steptime import StepClock
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.tracefile.files import write
from tests.conftest import Spawn

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
AGENTLOAD = (sys.executable, "-m", "agentload")
ARMS = ("bf16", "fp8")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    sessions = tuple(
        Session(
            session=f"s{number}",
            workload="chat",
            start_s=0.3 * number,
            turns=(Turn(add=(Segment(role="user", tokens=300, key=f"{number}"),), output=80),),
        )
        for number in range(24)
    )
    write(tmp_path / "t.jsonl", Trace(header=Header(name="t", seed=1), sessions=sessions))
    return tmp_path / "t.jsonl"


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Servers]]:
    with ExitStack() as stack:
        factors = {"m1": 1.0, "m2": 1.08}
        yield {
            name: stack.enter_context(
                start(arms_of("llama-3.1-8b-h100", ARMS), ServerOptions(noise=False, speed=1 / f))
            )
            for name, f in factors.items()
        }


def command(trace: Path, endpoints: str | Path, *options: str) -> list[str]:
    return [
        *AGENTLOAD,
        "replay",
        str(trace),
        "--endpoints",
        str(endpoints),
        "--db",
        "x.duckdb",
        "--pairs",
        "6",
        "--json",
        *options,
    ]


def change(folder: Path) -> tuple[float, float, float]:
    """Return how much longer a token takes on fp8, with its
    interval, and hold the run's machines against what was asked.
    """
    with duckdb.connect(str(folder / "x.duckdb"), read_only=True) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    with reading(folder / "x.duckdb") as connection:
        found = gather(connection, run_view(connection, run))
    relative = next(
        each.change.relative
        for each in speeds(found, (("chat", 1.0),), Policy())
        if each.change.metric == "tpot_ms"
    )
    assert relative.low is not None
    assert relative.high is not None
    assert found.deployment.machines == ("m1", "m2")
    return relative.low, relative.value, relative.high


def truth() -> float:
    """Return how much longer a step of two sequences takes on fp8, by the profile alone."""
    steps = []
    for arm in arms_of("llama-3.1-8b-h100", ARMS):
        assert arm.step is not None
        clock = StepClock(step=arm.step, experts=arm.model.experts, max_seqs=2)
        steps.append(clock.base_ps[2] + clock.per_token_ps[2] * 2 * 340)
    return steps[1] / steps[0] - 1


@pytest.mark.alone  # it measures by how much one machine is slower
@pytest.mark.parametrize("swap", [(), ("--swap",)], ids=["still", "swapped"])
def test_a_swap_tells_the_machine_from_the_arm(
    machines: dict[str, Servers], trace: Path, tmp_path: Path, swap: tuple[str, ...]
) -> None:
    arms = {
        arm: {"machines": {name: servers.urls[arm] for name, servers in machines.items()}}
        for arm in ARMS
    }
    (tmp_path / "arms.yaml").write_text(json.dumps({"arms": arms}))
    asked = command(trace, "arms.yaml", "--design", "parallel", *swap)
    done = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    low, value, high = change(tmp_path)
    if swap:
        assert value == pytest.approx(truth(), abs=0.01)
        assert low <= truth() <= high
        assert high - low < 0.09  # averaged over, 8% between six pairs would be 17%
    else:
        assert low > truth() + 0.04
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as connection:
        where = connection.execute(
            "SELECT DISTINCT arm, machine, leg FROM blocks ORDER BY leg, arm"
        ).fetchall()
    still = [("bf16", "m1", 1), ("fp8", "m2", 1)]
    assert where == ([*still, ("bf16", "m2", 2), ("fp8", "m1", 2)] if swap else still)


def test_servers_that_somebody_exchanges_are_waited_for(
    trace: Path, tmp_path: Path, spawn: Spawn
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = [one.getsockname()[1], two.getsockname()[1]]
    arms = {arm.name: arm for arm in arms_of("llama-3.1-8b-h100", ARMS)}
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    file = {
        "arms": {
            arm: {"url": url, "machine": f"m{number + 1}"}
            for number, (arm, url) in enumerate(zip(ARMS, urls, strict=True))
        }
    }
    (tmp_path / "arms.yaml").write_text(json.dumps(file))
    before = [
        start([arms[arm]], ServerOptions(port=port, noise=False))
        for arm, port in zip(ARMS, ports, strict=True)
    ]
    running = spawn(command(trace, "arms.yaml", "--design", "parallel", "--swap"), tmp_path)
    assert running.stderr is not None
    told = next(line for line in running.stderr if line.startswith("half way"))
    assert f"bf16 at {urls[1]}, fp8 at {urls[0]}" in told
    for servers in before:
        servers.stop()
    with (
        start([arms["fp8"]], ServerOptions(port=ports[0], noise=False)),
        start([arms["bf16"]], ServerOptions(port=ports[1], noise=False)),
    ):
        _, stderr = running.communicate(timeout=400)
    assert running.returncode == 0, stderr
    assert "the servers were exchanged" in stderr
    change(tmp_path)
