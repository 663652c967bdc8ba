"""Requests that are known ahead leave at their instants, sent by the thread or by the loop."""

import asyncio
import os
import socket
import time
from dataclasses import replace

import pytest

from agentload.live.hub import ReadPath
from agentload.live.reader import SocketReader
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.live.wire import Wire, WireRequest
from tests.live.by_thread import BY_THREAD, ON_LINUX, answer_well
from tests.live.calls import MS, in_time, passed, request
from tests.live.certificates import Certificates
from tests.live.hostility import event
from tests.live.scripted import END, STREAM, Peer, good, serving

pytestmark = ON_LINUX


class Arrivals:
    """Accept connections in a thread, and note when each request came whole."""

    def __init__(self, listening: socket.socket, *, pause_s: float = 0.0) -> None:
        self.came_ns: list[int] = []
        self.lengths: list[int] = []
        self._listening = listening
        self._pause_s = pause_s

    def serve(self, requests: int, length: int) -> None:
        """Answer so many requests, each with a body of *length* bytes, on one connection."""
        peer, _ = self._listening.accept()
        with peer:
            for _ in range(requests):
                time.sleep(self._pause_s)
                request = peer.recv(65536)
                while len(request.partition(b"\r\n\r\n")[2]) < length:
                    request += peer.recv(1 << 20)
                self.came_ns.append(time.monotonic_ns())
                self.lengths.append(len(request.partition(b"\r\n\r\n")[2]))
                events = [each if isinstance(each, dict) else b"[DONE]" for each in good(3)]
                chunks = [b"%x\r\n%b\r\n" % (len(each), each) for each in map(event, events)]
                peer.sendall(STREAM + b"".join(chunks) + END)


def ahead(wire: Wire, number: int, ahead_ms: int, body: bytes = b"{}") -> WireRequest:
    due_ns = wire.clock.now_ns() + ahead_ms * MS
    return replace(request(number, body=(body,)), released_ns=due_ns)


@pytest.mark.slow
@pytest.mark.alone  # how late a request leaves is what it measures
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_only_the_thread_sends_what_is_known_ahead_in_time_while_python_is_held(
    read_path: ReadPath, scheme: str, certificates: Certificates
) -> None:
    tls = certificates.server_context() if scheme == "https" else None
    trusted = context(authority=certificates.authority) if scheme == "https" else None
    async with (
        serving(answer_well, tls=tls) as server,
        Wire([Target(arm="a", url=server.url, tls=trusted)]) as wire,
    ):
        await wire.ready("a", "s")
        called = ahead(wire, 1, 100)
        asyncio.get_running_loop().call_later(0.05, time.sleep, 0.2)
        outcome = await wire.call(called)
    assert outcome.status == "ok"
    assert outcome.sent_ns is not None
    lag_ns = outcome.sent_ns - called.released_ns
    if read_path == "thread" and scheme == "http":
        assert 0 <= lag_ns < 100 * MS  # the machine may hold the thread too
    else:
        assert lag_ns > 100 * MS


@pytest.mark.parametrize("length", [2, 6 << 20])
async def test_calls_sent_at_their_instants_share_a_connection_and_have_stamps_of_their_own(
    read_path: ReadPath, length: int
) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Arrivals(listening, pause_s=0.1 if length > 2 else 0.0)
        served = loop.run_in_executor(None, server.serve, 3, length)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        async with Wire([Target(arm="a", url=url)]) as wire:
            for number in range(3):
                called = ahead(wire, number, 20 * (number % 2), b"x" * length)
                outcome = await wire.call(called)
                assert (outcome.status, outcome.stamp_source) == ("ok", "kernel")
                assert outcome.sent_ns is not None
                assert outcome.first_ns is not None
                assert called.released_ns <= outcome.sent_ns <= server.came_ns[number] + MS
                assert outcome.sent_ns <= outcome.first_ns
                assert (outcome.opened_ns is None) == (number > 0)
            assert wire.facts().dropped_stamps == 0
        await served
    assert server.lengths == [length] * 3


async def test_a_call_cancelled_before_its_instant_is_never_sent(read_path: ReadPath) -> None:
    async def attempt(lead_ms: int) -> bool:
        async with serving(answer_well) as server, Wire([Target(arm="a", url=server.url)]) as wire:
            assert (await wire.call(ahead(wire, 1, 20))).status == "ok"
            call = ahead(wire, 2, lead_ms)
            called = asyncio.create_task(wire.call(call))
            await asyncio.sleep(0.03)
            wire.cancel("r2")
            if time.monotonic_ns() >= call.released_ns:
                return False
            outcome = await called
            assert (outcome.status, outcome.sent_ns) == ("cancelled", None)
            await passed(call.released_ns)
            assert len(server.requests) == 1
            assert (await wire.call(ahead(wire, 3, 20))).status == "ok"
            assert (len(server.requests), server.connections) == (2, 2)
        return True

    await in_time(attempt)


async def test_a_wire_that_closes_before_an_instant_sends_nothing(read_path: ReadPath) -> None:
    async def attempt(lead_ms: int) -> bool:
        async with serving(answer_well) as server:
            async with Wire([Target(arm="a", url=server.url)]) as wire:
                call = ahead(wire, 1, lead_ms)
                called = asyncio.create_task(wire.call(call))
                await asyncio.sleep(0.03)
            if time.monotonic_ns() >= call.released_ns:
                return False
            outcome = await called
            assert (outcome.status, outcome.sent_ns) == ("stopped", None)
            await passed(call.released_ns)
            assert server.requests == []
        return True

    await in_time(attempt)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_kept_connection_that_ends_before_an_instant_is_found_at_the_instant(
    read_path: ReadPath, *, is_broken: bool
) -> None:
    waits = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.answer(3)
        await waits.wait()
        if is_broken:
            peer.reset()
        else:
            peer.writer.close()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        assert (await wire.call(ahead(wire, 1, 0))).status == "ok"
        called = ahead(wire, 2, 700)
        calling = asyncio.create_task(wire.call(called))
        await asyncio.sleep(0)  # it takes the connection that was kept
        waits.set()
        outcome = await calling
        assert outcome.status == "reset"
        assert outcome.done_ns is not None
        assert outcome.done_ns >= called.released_ns
        assert (await wire.call(ahead(wire, 3, 10))).status == "ok"
        assert server.connections == 2


@BY_THREAD
async def test_requests_leave_in_the_order_of_their_instants(
    socket_reader: SocketReader, both_ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = both_ends
    files = [os.dup(ours.fileno()) for _ in range(200)]
    order = [number * 77 % 200 for number in range(200)]

    async def attempt(lead_ms: int) -> bool:
        first_ns = time.monotonic_ns() + lead_ms * MS
        for number in order:
            at_ns = first_ns + number * MS // 2
            socket_reader.send(files[number], lambda: None, [b"%03d" % number], at_ns)
        are_ahead = time.monotonic_ns() < first_ns
        found = b""
        async with asyncio.timeout(60):
            while len(found) < 600:
                found += await asyncio.get_running_loop().sock_recv(theirs, 1024)
        for file in files:
            socket_reader.leave(file)
        assert not are_ahead or found == b"".join(b"%03d" % number for number in range(200))
        return are_ahead

    await in_time(attempt)
    socket_reader.close()
    for file in files:
        os.close(file)


@pytest.mark.usefixtures("read_path")
async def test_a_connection_that_fails_before_any_answer_keeps_its_send_stamp() -> None:
    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.1)
        peer.reset()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        assert (await wire.call(request())).status == "reset"
        assert wire.facts().unstamped_sends == 0
