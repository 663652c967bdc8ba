"""Calls that are handed to the wire ahead of their instant."""

import asyncio
import time
from dataclasses import replace

import pytest

from agentload.live.target import Target
from agentload.live.wire import Wire
from tests.live.calls import MS, in_time, passed, request
from tests.live.scripted import Peer, Scripted, serving

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]


async def good_answer(peer: Peer) -> None:
    await peer.answer()


async def test_a_call_leaves_at_its_instant_on_a_connection_that_was_opened_before() -> None:
    async def attempt(lead_ms: int) -> bool:
        async with serving(good_answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
            released_ns = time.monotonic_ns() + lead_ms * MS
            calling = asyncio.create_task(wire.call(replace(request(), released_ns=released_ns)))
            for _ in range(20):  # far more turns of the loop than a connection takes
                await asyncio.sleep(0.005)
            is_ahead = time.monotonic_ns() < released_ns
            outcome = await calling
        assert outcome.status == "ok"
        assert outcome.opened_ns is not None
        assert outcome.sent_ns is not None
        assert released_ns <= outcome.sent_ns
        assert not is_ahead or outcome.opened_ns < released_ns
        return is_ahead

    await in_time(attempt)


async def connected(server: Scripted) -> None:
    """Wait until a client has a connection."""
    async with asyncio.timeout(60):
        while not server.connections:  # noqa: ASYNC110  # a scripted server has no event
            await asyncio.sleep(0.005)


async def test_a_call_that_is_cancelled_ahead_of_its_instant_never_leaves() -> None:
    async def attempt(lead_ms: int) -> bool:
        async with serving(good_answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
            instant_ns = time.monotonic_ns() + lead_ms * MS
            calling = asyncio.create_task(wire.call(replace(request(), released_ns=instant_ns)))
            await connected(server)
            wire.cancel("r0")
            if time.monotonic_ns() >= instant_ns:
                return False
            outcome = await calling
            await passed(instant_ns)
            assert server.requests == []
        assert (outcome.status, outcome.sent_ns) == ("cancelled", None)
        return True

    await in_time(attempt)


async def test_a_wire_that_closes_ahead_of_an_instant_sends_nothing() -> None:
    async def attempt(lead_ms: int) -> bool:
        async with serving(good_answer) as server:
            async with Wire([Target(arm="a", url=server.url)]) as wire:
                instant_ns = time.monotonic_ns() + lead_ms * MS
                calling = asyncio.create_task(wire.call(replace(request(), released_ns=instant_ns)))
                await connected(server)
            if time.monotonic_ns() >= instant_ns:
                return False
            assert (await calling).status == "stopped"
            await passed(instant_ns)
            assert server.requests == []
        return True

    await in_time(attempt)
