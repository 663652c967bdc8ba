import asyncio
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from agentload.live.channel import Link
from agentload.live.connections import Connections
from agentload.live.hub import Hub, ReadPath
from agentload.live.reader import SocketReader
from agentload.live.target import Target
from agentload.live.wire import Wire, WireFacts
from agentload.model.commands import Limits
from tests.live.calls import MS, hasty, one_call, request
from tests.live.late import written_to_a_late_reader
from tests.live.scripted import END, STREAM, Peer, good, serving, token
from tests.live.test_wire_failures import drips, never_answers

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]
LINUX = sys.platform == "linux"


async def test_a_good_call_is_stamped_by_the_kernel_in_the_order_of_events(
    read_path: ReadPath,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for payload in good(3):
            await asyncio.sleep(0.005)
            await peer.events(payload)
            await peer.taken()
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        called = request()
        outcome = await wire.call(called)
        now_ns = time.monotonic_ns()
        assert wire.facts() == WireFacts(
            unstamped_reads=0,
            unstamped_sends=0,
            clock_steps=0,
            largest_step_ns=0,
            read_path=read_path,
        )
    assert (outcome.status, outcome.error, outcome.http_status, outcome.finish_reason) == (
        "ok",
        None,
        200,
        "length",
    )
    assert (
        outcome.prompt_tokens,
        outcome.output_tokens,
        outcome.token_rule,
        outcome.coalesced_reads,
    ) == (5, 3, "token_ids", 0)
    assert outcome.stamp_source == ("kernel" if LINUX else "user")
    assert outcome.reply is not None
    assert outcome.reply.text == "w0 w1 w2 "
    assert outcome.chunks is not None
    stamps_ns = outcome.chunks.ns()
    assert outcome.opened_ns is not None
    assert outcome.sent_ns is not None
    assert outcome.done_ns is not None
    in_order = [
        called.released_ns,
        outcome.opened_ns,
        outcome.sent_ns,
        *stamps_ns,
        outcome.done_ns,
        now_ns,
    ]
    assert in_order == sorted(in_order)
    assert all(after - before >= 4 * MS for before, after in pairwise(stamps_ns))


@pytest.mark.skipif(not LINUX, reason="only Linux stamps")
async def test_a_late_reader_does_not_move_the_stamps() -> None:
    def serve(listening: socket.socket) -> list[tuple[int, int]]:
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            return written_to_a_late_reader(peer, loop)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_it = loop.run_in_executor(None, serve, listening)
        outcome = await one_call(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        written_ns = await serving_it
    assert outcome.chunks is not None
    assert [
        before - MS <= stamp <= after
        for stamp, (before, after) in zip(outcome.chunks.ns(), written_ns, strict=True)
    ] == [True, True]


async def test_a_watched_call_is_told_its_tokens_and_can_be_cancelled_after_some() -> None:
    async with serving(drips) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        seen: list[int] = []

        def on_tokens(tokens: int) -> None:
            seen.append(tokens)
            if tokens >= 3:  # on a busy machine two tokens may come at once
                wire.cancel("r0")

        outcome = await wire.call(replace(request(tokens=100), on_tokens=on_tokens))
    assert (outcome.status, outcome.output_tokens) == ("cancelled", seen[-1])
    assert seen == sorted(set(seen))
    assert [each >= 3 for each in seen] == [False] * (len(seen) - 1) + [True]


async def test_a_call_that_is_stopped_has_what_came_before() -> None:
    came = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(token("w0 "))
        await peer.taken()
        came.set()
        await peer.hang()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        call = asyncio.create_task(wire.call(request(tokens=1000, limits=Limits())))
        await came.wait()
        await asyncio.sleep(0.05)  # a thread that reads tells of it later still
        wire.cancel("r0", "stopped")
        outcome = await call
    assert (outcome.status, outcome.output_tokens) == ("stopped", 1)
    assert outcome.first_ns is not None


async def test_a_call_is_stopped_while_it_waits_for_its_connection() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        async with Wire(
            [Target(arm="a", url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")]
        ) as wire:
            asyncio.get_running_loop().call_later(0.02, wire.cancel, "r0", "stopped")
            outcome = await wire.call(request())
    assert outcome.status == "stopped"


class Opens(Connections):
    """Calls a function in the turn in which a connection has opened, before anybody has it."""

    def __init__(self, target: Target, wire: Wire, then: Callable[[], None]) -> None:
        super().__init__(target, clock=wire.clock)
        self._then = then

    async def open(self) -> Link:
        link = await super().open()
        self._then()
        return link


async def test_a_cancel_in_the_turn_in_which_a_connection_opens_is_not_lost() -> None:
    async with serving(Peer.answer) as server:
        target = Target(arm="a", url=server.url)
        async with Wire([target]) as wire:
            wire._arms["a"] = Opens(target, wire, lambda: wire.cancel("r0", "stopped"))
            outcome = await wire.call(request())
        assert server.requests == []
    assert (outcome.status, outcome.sent_ns) == ("stopped", None)


async def test_closing_the_wire_stops_what_is_in_flight() -> None:
    async with serving(never_answers) as server:
        wire = Wire([Target(arm="a", url=server.url)])
        asyncio.get_running_loop().call_later(0.05, wire.close)
        outcome = await wire.call(request())
    assert outcome.status == "stopped"


async def test_cancelling_a_call_that_has_ended_changes_nothing() -> None:
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request())
        wire.cancel("r0")
        wire.cancel("never heard of")
    assert outcome.status == "ok"


async def test_a_cancelled_task_closes_its_connection() -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        came.set()
        await peer.hang()
        gone.set()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        calling = asyncio.create_task(wire.call(request()))
        await came.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        hub = wire._hub
        assert isinstance(hub, (Hub, SocketReader))
        assert (hub._callbacks if isinstance(hub, Hub) else hub._streams) == {}
        await asyncio.wait_for(gone.wait(), 60)


async def test_many_streams_at_once_lose_no_chunk() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for payload in good(20):
            await peer.events(payload)
            await asyncio.sleep(0.002)
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = await asyncio.gather(
            *(wire.call(request(n, session=str(n), tokens=20, limits=Limits())) for n in range(64))
        )
    assert {
        (outcome.status, outcome.output_tokens, len(outcome.chunks or ())) for outcome in outcomes
    } == {("ok", 20, 20)}


async def test_a_mistake_of_whoever_watches_ends_the_call_and_no_other() -> None:
    def on_tokens(_: int) -> None:
        raise AssertionError("a mistake of ours")

    async with serving(drips) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        other = asyncio.create_task(wire.call(request(1, session="t", limits=hasty("total"))))
        with pytest.raises(AssertionError, match="a mistake of ours"):
            await wire.call(replace(request(), on_tokens=on_tokens))
        assert (await other).status == "total_timeout"


async def test_a_busy_server_says_how_long_it_wants_to_be_left_alone() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(
            b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\ncontent-length: 2\r\n\r\n{}"
        )

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.retry_after_ns) == ("busy", 7_000 * MS)
