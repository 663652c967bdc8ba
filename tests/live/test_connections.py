import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentload.errors import LaunchError
from agentload.live import connections as connections_module
from agentload.live import connections as dial_module
from agentload.live.connections import Place
from agentload.live.target import Address, Policy, Target
from agentload.live.wire import Wire
from tests.live.calls import request
from tests.live.scripted import END, STREAM, Peer, good, serving

pytestmark = pytest.mark.loopback


async def good_answer(peer: Peer) -> None:
    await peer.answer()


@pytest.mark.parametrize(
    ("policy", "connections"),
    [("session", [1, 2, 1, 2]), ("pool", [1, 1, 1, 1]), ("call", [1, 2, 3, 4])],
)
async def test_connections_follow_the_policy(policy: Policy, connections: list[int]) -> None:
    async with (
        serving(good_answer) as server,
        Wire([Target(arm="a", url=server.url, connections=policy)]) as wire,
    ):
        outcomes = [
            await wire.call(request(number, session=session))
            for number, session in enumerate("xyxy")
        ]
    assert [asked.connection for asked in server.requests] == connections
    reused = [number in connections[:at] for at, number in enumerate(connections)]
    assert [outcome.opened_ns is None for outcome in outcomes] == reused
    assert [asked.headers.get("connection") for asked in server.requests] == [
        "close" if policy == "call" else None
    ] * 4


async def test_calls_of_one_session_at_the_same_time_each_have_a_connection() -> None:
    async with serving(good_answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        await asyncio.gather(wire.call(request(0)), wire.call(request(1)))
    assert {asked.connection for asked in server.requests} == {1, 2}


async def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer()
        peer.writer.close()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        first = await wire.call(request(0))
        await asyncio.sleep(0.02)
        second = await wire.call(request(1))
    assert (first.status, second.status, server.connections) == ("ok", "ok", 2)


async def test_a_connection_that_breaks_under_a_call_is_reported_and_not_retried() -> None:
    async def answer(peer: Peer) -> None:
        if peer.number == 2:
            peer.writer.close()
        else:
            await peer.answer()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(3)]
    assert [outcome.status for outcome in outcomes] == ["ok", "reset", "ok"]
    assert [asked.connection for asked in server.requests] == [1, 1, 2]


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with (
        serving(good_answer) as server,
        Wire([Target(arm="a", url=server.url, idle_s=0.02)]) as wire,
    ):
        await wire.call(request(0))
        await asyncio.sleep(0.04)
        await wire.call(request(1))
        assert server.connections == 2


async def test_idle_connections_are_closed_in_time() -> None:
    hung_up = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.answer()
        await peer.hang()
        hung_up.set()

    async with (
        serving(answer) as server,
        Wire([Target(arm="a", url=server.url, idle_s=0.1)]) as wire,
    ):
        await wire.call(request())
        await asyncio.wait_for(hung_up.wait(), 60)


async def test_bytes_behind_an_answer_spoil_the_connection_and_not_the_answer() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*good(3))
        await peer.send(END + b"HTTP/1.1 200 OK\r\n\r\n")

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(2)]
    assert ([outcome.status for outcome in outcomes], server.connections) == (["ok", "ok"], 2)


async def test_a_connection_can_be_made_ready_before_its_call() -> None:
    async with serving(good_answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        await wire.ready("a", "s")
        await wire.ready("a", "s")
        outcome = await wire.call(request())
        assert (outcome.opened_ns, server.connections) == (None, 1)


@pytest.mark.parametrize("policy", ["session", "pool", "call"])
async def test_a_connection_made_ready_serves_one_call_under_any_policy(policy: Policy) -> None:
    async with (
        serving(good_answer) as server,
        Wire([Target(arm="a", url=server.url, connections=policy)]) as wire,
    ):
        await wire.ready("a", "s")
        outcomes = [await wire.call(request(number)) for number in range(2)]
        assert server.connections == (2 if policy == "call" else 1)
    assert [outcome.opened_ns is None for outcome in outcomes] == [True, policy != "call"]


async def test_making_ready_a_server_that_is_down_is_left_for_the_call_to_find() -> None:
    async with Wire([Target(arm="a", url="http://127.0.0.1:1/v1")]) as wire:
        await wire.ready("a", "s")
        assert (await wire.call(request())).status == "refused"


async def test_a_forgotten_session_starts_afresh() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM.replace(b"\r\n\r\n", b"\r\nset-cookie: route=r1; Path=/\r\n\r\n"))
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        await wire.call(request(0))
        await wire.call(request(1))
        wire.forget("a", "s")
        await wire.call(request(2))
    assert [asked.headers.get("cookie") for asked in server.requests] == [None, "route=r1", None]
    assert [asked.connection for asked in server.requests] == [1, 1, 2]


async def test_cookies_belong_to_their_session_until_the_server_takes_them_back() -> None:
    async def answer(peer: Peer) -> None:
        cookie = {1: b"a=1; HttpOnly", 2: b"b=2", 3: b"a=; Max-Age=0"}.get(peer.number, b"c=3")
        await peer.send(STREAM.replace(b"\r\n\r\n", b"\r\nSet-Cookie: %b\r\n\r\n" % cookie))
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        for number, session in enumerate("sssst"):
            await wire.call(request(number, session=session))
    assert [asked.headers.get("cookie") for asked in server.requests] == [
        None,
        "a=1",
        "a=1; b=2",
        "b=2",
        None,
    ]


async def test_the_replica_is_the_peer_and_the_chosen_headers() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(
            STREAM.replace(b"\r\n\r\n", b"\r\nX-Served-By: pod-7\r\nX-Other: 1\r\n\r\n")
        )
        await peer.events(*good(3))
        await peer.send(END)

    async with (
        serving(answer) as server,
        Wire([Target(arm="a", url=server.url, replica_headers=("X-Served-By",))]) as wire,
    ):
        outcome = await wire.call(request())
    assert outcome.replica == f"127.0.0.1:{server.port}; x-served-by=pod-7"


@contextmanager
def deaf() -> Iterator[Place]:
    """An address that never answers, as one behind a firewall."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for waiting in (first, second):  # fill the queue of connections that nobody accepts
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield socket.AF_INET, listening.getsockname()


async def test_the_next_address_is_tried_where_one_does_not_answer_and_no_later_connection_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial_module, "NEXT_S", 0.05)
    async with serving(Peer.answer) as server:
        good: Place = (socket.AF_INET, ("127.0.0.1", server.port))
        unspoken: Place = (socket.AF_APPLETALK, ("127.0.0.1", server.port))
        refusing: Place = (socket.AF_INET, ("127.0.0.1", 1))
        with deaf() as silent:

            async def places(_: Address) -> list[Place]:
                return [unspoken, refusing, silent, good]

            monkeypatch.setattr(connections_module, "places", places)
            async with Wire([Target(arm="a", url=server.url, connections="call")]) as wire:
                first = await wire.call(request(0))
                assert wire._arms["a"]._places == [good]
                monkeypatch.setattr(dial_module, "NEXT_S", 1_000.0)
                second = await wire.call(request(1))
    assert (first.status, second.status) == ("ok", "ok")
    assert first.opened_ns is not None
    assert first.dialled_ns is not None
    assert first.opened_ns - first.dialled_ns >= 50_000_000


async def test_a_machine_that_has_no_sockets_left_is_the_users_to_mend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with Wire([Target(arm="a", url="http://127.0.0.1:9/v1")]) as wire:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", refuse)
            with pytest.raises(LaunchError) as caught:
                await wire.call(request())
    assert caught.value.hint == "raise the limit: ulimit -n 65536"


async def test_a_connection_that_says_more_than_its_answer_is_not_used_again() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*good(3))
        await peer.send(END[:3])
        await asyncio.sleep(0.02)  # the end is divided, and what follows comes with its rest
        await peer.send(END[3:] + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        for number in range(2):
            await wire.call(request(number))
    assert [asked.connection for asked in server.requests] == [1, 2]
