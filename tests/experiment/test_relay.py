"""A server that is being started when its run ends does not outlive it, whatever ends the run."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.endpoints import launch
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.launch import Running
from agentload.experiment import relay
from agentload.experiment.relay import Launching, Relay
from tests.endpoints.test_launch import arm

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
        await asyncio.wait_for(meeting, 5)


@pytest.mark.parametrize("is_ready", [False, True])
async def test_a_start_that_is_cut_short_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.05)
    begun, spawned = threading.Event(), []
    before_spawned, before_start = launch._spawned, launch.start

    def spawn(*given: object) -> Running:
        spawned.append(before_spawned(*given))  # type: ignore[arg-type]  # handed on as it came
        if not is_ready:
            begun.set()
        return spawned[-1]

    def start(*given: object, **named: object) -> Running:
        running = before_start(*given, **named)  # type: ignore[arg-type]  # as above
        begun.set()
        threading.Event().wait(0.1)  # ready, and nobody was told yet
        return running

    monkeypatch.setattr(launch, "_spawned", spawn)
    monkeypatch.setattr(relay, "start", start)
    await cut_short(arm() if is_ready else replace(arm(), launch=Launch(command=("sleep", "20"))), tmp_path, begun)
    (running,) = spawned
    assert running.survivors() == ()
