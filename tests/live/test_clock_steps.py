"""The wall clock is stepped while calls are in flight: the kernel's
stamps and our readings of it move alike, what is measured does not.
"""

import socket
import struct
from collections.abc import Iterator

import pytest

import agentload
from agentload.live import channel as module
from agentload.live.channel import Channel
from agentload.live.stamps import StampClock

SECOND = 1_000_000_000
STAMPING = 37


class World:
    """A monotonic clock that only goes on, a wall clock that
    is stepped, and a kernel that stamps by the wall clock.
    """

    def __init__(self) -> None:
        self.now = 1_000 * SECOND
        self.ahead = 1_700_000_000 * SECOND

    def monotonic_ns(self) -> int:
        self.now += 200
        return self.now

    def wall_ns(self) -> int:
        return self.now + self.ahead

    def stamp(self, at_ns: int) -> bytes:
        return struct.pack("@ll", *divmod(at_ns + self.ahead, SECOND)) + bytes(32)


class Socket:
    """Hand out reads whose stamps are those of their arrival, and stamps of sends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.arrived: list[tuple[bytes, bytes]] = []
        self.family = socket.AF_INET

    def fileno(self) -> int:
        return 3

    def setsockopt(self, *_: object) -> None: ...

    def arrives(self, data: bytes) -> int:
        self.arrived.append((data, self._world.stamp(self._world.now)))
        return self._world.now

    def recvmsg(self, _: int, __: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        if not self.arrived:
            raise BlockingIOError
        data, stamp = self.arrived.pop(0)
        return data, [(socket.SOL_SOCKET, STAMPING, stamp)], 0, None

    def sendmsg(self, parts: list[memoryview]) -> int:
        return sum(len(part) for part in parts)


@pytest.fixture
async def ends() -> tuple[World, Socket, Channel, StampClock]:
    return world_of()


def world_of() -> tuple[World, Socket, Channel, StampClock]:
    world = World()
    clock = StampClock(monotonic_ns=world.monotonic_ns, wall_ns=world.wall_ns)
    sock = Socket(world)
    # as much of a socket as a channel uses
    return world, sock, Channel(sock, clock=clock, peer="p"), clock  # type: ignore[arg-type]


STEPS = [SECOND, -SECOND, 3_600 * SECOND, -3_600 * SECOND, 100_000, -100_000]


@pytest.mark.parametrize("step_ns", STEPS)
async def test_a_step_between_two_reads_moves_no_arrival_by_more_than_the_wait_for_the_read(
    ends: tuple[World, Socket, Channel, StampClock], step_ns: int
) -> None:
    world, sock, channel, clock = ends
    for number in range(10):
        if number == 5:
            world.ahead += step_ns
        world.now += 20_000_000
        at_ns = sock.arrives(b"x")
        world.now += 1_000_000  # until somebody reads it
        (got,) = channel.receive()
        assert at_ns - 1_000_000 <= got[0] <= world.now, number
        if number != 5 or abs(step_ns) > SECOND // 2:
            assert abs(got[0] - at_ns) <= 100_000 + 1_000, number
    clock.sample()
    assert clock.steps == 1
    assert abs(clock.largest_step_ns - abs(step_ns)) < 5_000


@pytest.mark.skipif(
    agentload.COMPILED.endswith("modules"),
    reason="compiled modules call what this replaces directly",
)
@pytest.mark.parametrize("step_ns", STEPS)
async def test_a_step_moves_no_leaving_of_a_request(
    ends: tuple[World, Socket, Channel, StampClock], step_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _, channel, _ = ends
    stamps: Iterator[list[tuple[int, int]]]
    world.now += 5_000_000
    before_ns = world.now
    channel.write([b"request"])
    world.now += 50_000
    world.ahead += step_ns  # and its stamp is of the new time
    stamps = iter([[(6, world.now + world.ahead)]])
    monkeypatch.setattr(module, "sent_ns", lambda _: next(stamps, []))
    left_ns = world.now
    world.now += 2_000_000
    sent_ns = channel.sent_ns()
    assert sent_ns is not None
    assert before_ns <= sent_ns <= world.now
    assert abs(sent_ns - left_ns) <= 150_000


@pytest.mark.parametrize("step_ns", STEPS)
async def test_an_answer_is_never_older_than_its_request(
    ends: tuple[World, Socket, Channel, StampClock], step_ns: int
) -> None:
    world, sock, channel, _ = ends
    world.now += 5_000_000_000
    world.ahead += step_ns
    channel.write([b"request"])
    begun_ns = world.now
    world.now += 30_000_000
    at_ns = sock.arrives(b"x")
    world.now += 1_000_000
    (got,) = channel.receive()
    assert begun_ns <= got[0] <= world.now
    assert abs(got[0] - at_ns) <= 1_000_000 + 1_000


@pytest.mark.parametrize("step_ns", [-400_000_000, 400_000_000])
async def test_a_stamp_that_no_reading_of_the_wall_clock_explains_is_none(
    ends: tuple[World, Socket, Channel, StampClock], step_ns: int
) -> None:
    world, sock, channel, clock = ends
    channel.write([b"request"])
    world.now += 30_000_000
    stamp = world.stamp(world.now)  # the kernel knows nothing of what moves the clock for us
    sock.arrived.append((b"x", stamp))
    world.ahead += step_ns
    clock.sample()
    world.now += 1_000_000
    before_ns = world.now
    (got,) = channel.receive()
    assert before_ns <= got[0] <= world.now
    assert channel.unstamped_reads == 1


async def test_bytes_that_were_lost_and_sent_again_are_as_late_as_what_they_waited_for(
    ends: tuple[World, Socket, Channel, StampClock],
) -> None:
    world, sock, channel, clock = ends
    channel.write([b"request"])
    world.now += 10_000_000
    early = world.stamp(world.now)  # arrived before the bytes ahead of it, which were lost once
    world.now += 40_000_000
    at_ns = sock.arrives(b"x")
    sock.arrived.append((b"y", early))
    world.now += 1_000_000
    (first,), (second,) = channel.receive(), channel.receive()
    assert first[0] == second[0]
    assert abs(first[0] - at_ns) < 1_000
    assert (channel.unstamped_reads, clock.steps) == (0, 0)
