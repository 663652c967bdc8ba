import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator

import pytest

from agentload.live import stamps
from agentload.live.channel import Channel
from agentload.live.stamps import StampClock

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps"),
]

SECOND = 1_000_000_000


@pytest.fixture
async def ends() -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """A stamped client's end, and the server's."""
    vigil = stamps.Vigil()
    assert await vigil.begun()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as ours:
        assert stamps.stamp_received(ours)
        ours.connect(listening.getsockname())
        ours.setblocking(False)
        theirs, _ = listening.accept()
        with theirs:
            yield ours, theirs
    vigil.close()


async def arrived(channel: Channel) -> tuple[int, bytes]:
    while not (received := channel.receive()):
        await channel.readable()
    (read,) = received
    return read


async def test_bytes_are_stamped_between_their_writing_and_their_reading(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = Channel(ours, clock=StampClock(), peer="p")
    before_ns = time.monotonic_ns()
    theirs.sendall(b"hello")
    written_ns = time.monotonic_ns()
    await asyncio.sleep(0.1)
    at_ns, data = await arrived(channel)
    assert (data, channel.unstamped_reads) == (b"hello", 0)
    assert before_ns - 1_000 <= at_ns <= written_ns + 50_000_000
    assert at_ns < time.monotonic_ns() - 50_000_000


async def test_the_stamp_of_a_write_is_that_of_its_last_byte(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = Channel(ours, clock=StampClock(), peer="p")
    body = b"x" * 20_000_000
    channel.write([b"head", body])
    assert channel.sent_ns() is None
    half_ns = time.monotonic_ns()
    loop = asyncio.get_running_loop()
    received = await loop.run_in_executor(None, _drained, theirs, len(body) + 4)
    async with asyncio.timeout(60):
        while (sent_ns := channel.sent_ns()) is None:  # noqa: ASYNC110  # the kernel tells it at the last byte
            await asyncio.sleep(0.001)
    assert received == len(body) + 4
    assert channel.is_sent_stamped
    assert sent_ns is not None
    assert half_ns < sent_ns < time.monotonic_ns()


def _drained(sock: socket.socket, length: int) -> int:
    got = 0
    while got < length:
        got += len(sock.recv(1 << 20))
    return got


@pytest.mark.parametrize("behind_ns", [5 * SECOND, -5 * SECOND])
async def test_a_step_of_the_wall_clock_is_noticed_by_the_first_stamp_that_cannot_be(
    ends: tuple[socket.socket, socket.socket], behind_ns: int
) -> None:
    ours, theirs = ends
    skew_ns = 0
    clock = StampClock(wall_ns=lambda: time.time_ns() - skew_ns)
    channel = Channel(ours, clock=clock, peer="p")
    theirs.sendall(b"a")
    await arrived(channel)
    # Our offset is measured on a clock that is then
    # set right: to the kernel's stamps that is a step.
    skew_ns = behind_ns
    clock.sample()
    skew_ns = 0
    before_ns = time.monotonic_ns()
    theirs.sendall(b"b")
    at_ns, _ = await arrived(channel)
    assert before_ns - 1_000_000 <= at_ns <= time.monotonic_ns()
    assert clock.steps == 2


async def test_the_end_of_a_stream_is_no_bytes_and_a_broken_one_an_error(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    channel = Channel(ours, clock=StampClock(), peer="p")
    theirs.shutdown(socket.SHUT_WR)
    assert (await arrived(channel))[1] == b""
    theirs.close()
    channel.write([b"x"])
    await asyncio.sleep(0.01)
    channel.write([b"y"])
    assert channel.sent_ns() is None
    channel.close()
    channel.close()
