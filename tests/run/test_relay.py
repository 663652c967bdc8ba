"""A server that is being started when its run ends does not outlive
it, whatever ends the run; one that runs is known by its own log.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentload.endpoints import launch
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.identity import identify
from agentload.endpoints.launch import LaunchedServer
from agentload.model.rows import BlockRow, FingerprintRow, SampleRow
from agentload.run import relay
from agentload.run.relay import PRIMED, Launching, Relay, prime, prime_all
from tests.endpoints.test_launch import arm
from tests.live.scripted import Peer, serving
from tests.run.playing import answering, played
from tests.serve.arms import arm as emulated
from tests.serve.serving import served

pytestmark = pytest.mark.loopback


async def cut_short(endpoint: Endpoint, logs: Path, begun: threading.Event) -> None:
    """Begin to start a server, and fail elsewhere meanwhile."""

    async def meet() -> None:
        async with Relay({endpoint.name: endpoint}, Launching(logs=logs)) as servers:
            await servers.meet(endpoint.name)

    meeting = asyncio.create_task(meet())
    assert await asyncio.to_thread(begun.wait, 10)
    meeting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(meeting, 60)


@pytest.mark.parametrize("is_ready", [False, True])
async def test_a_start_that_is_cut_short_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.05)
    begun, spawned = threading.Event(), []
    before_spawned, before_start = launch._spawned, launch.start

    def spawn(*given: object) -> LaunchedServer:
        spawned.append(before_spawned(*given))  # type: ignore[arg-type]  # handed on as it came
        if not is_ready:
            begun.set()
        return spawned[-1]

    def start(*given: object, **named: object) -> LaunchedServer:
        running = before_start(*given, **named)  # type: ignore[arg-type]  # as above
        begun.set()
        threading.Event().wait(0.1)  # ready, and nobody was told yet
        return running

    monkeypatch.setattr(launch, "_spawned", spawn)
    monkeypatch.setattr(relay, "start", start)
    await cut_short(
        arm() if is_ready else replace(arm(), launch=Launch(command=("sleep", "20"))),
        tmp_path,
        begun,
    )
    (running,) = spawned
    assert running.survivors() == ()


LOGGED = """INFO 11-20 09:00:00 [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config: model='m', kv_cache_dtype='fp8'
INFO 11-20 09:00:01 [kv.py:1] GPU KV cache size: 4,096 tokens
"""
WORKING = (
    "INFO 11-20 09:00:09 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 2.0 tokens/s, "
    "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 25.0%\n"
)


@dataclass(frozen=True)
class Logging:
    """A server that was started, of which a test sees nothing but its log."""

    log: Path

    def stop(self) -> None:
        with self.log.open("a") as log:
            log.write("stopped\n")


async def test_a_server_that_only_its_log_describes_keeps_its_facts_from_block_to_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    def begun(endpoint: Endpoint, *, logs: Path, **_: object) -> Logging:
        logs.mkdir(parents=True)
        running = Logging(logs / f"{endpoint.name}.log")
        running.log.write_text(LOGGED)
        started.append(running.log)
        return running

    monkeypatch.setattr(relay, "start", begun)

    answer = answering()

    async def works(peer: Peer) -> None:
        if "x-request-id" in peer.request.headers:
            with started[-1].open("a") as log:
                log.write(WORKING)
            await asyncio.sleep(0.05)  # time for a look at the log
        await answer(peer)

    async with serving(works) as server:
        arms = [
            Endpoint(name=name, url=server.url, launch=Launch(command=("m",)))
            for name in ("a", "b")
        ]
        rows = await played(tmp_path, arms, pairs=2, launching=Launching(logs=tmp_path / "logs"))
    assert [(row.arm, row.void) for row in rows if isinstance(row, BlockRow)] == [
        (arm, None) for arm in "baab"
    ]
    facts = [json.loads(row.facts) for row in rows if isinstance(row, FingerprintRow)]
    assert {(each["kv_cache_dtype"], each["pool_tokens"]) for each in facts} == {("fp8", 4096)}
    # It does not say when it was started; we know, for we started it: as often as there are logs.
    assert len({each["process_start_s"] for each in facts}) == len(started)
    assert {row.arm for row in rows if isinstance(row, SampleRow) and row.name == "kv_usage"} == {
        "a",
        "b",
    }


async def test_a_server_that_has_just_started_has_answered_before_it_is_measured() -> None:
    async with served(emulated()) as running:
        endpoint = Endpoint(name="a", url=running.url)
        await prime(endpoint)
        assert (await identify(endpoint)).counters["requests_done"] == len(PRIMED)


def test_what_cannot_be_asked_is_said_and_stops_nobody() -> None:
    said: list[str] = []
    prime_all([Endpoint(name="a", url="http://127.0.0.1:9/v1")], notice=said.append)
    assert [line.partition(": ")[0] for line in said] == ["a"]
