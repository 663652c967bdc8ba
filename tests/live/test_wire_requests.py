"""How requests go out: long bodies, expectations, redirects, and to which kinds of address."""

import asyncio
from pathlib import Path

import pytest

from agentload.live.target import Target
from agentload.live.wire import Wire
from tests.live.calls import one_call, request
from tests.live.scripted import Peer, serving
from tests.live.test_wire_failures import is_full, refuses_the_prompt

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]


async def test_a_body_of_half_a_megabyte_arrives_whole_at_a_slow_server() -> None:
    prompt = (b'{"messages":"', bytes(range(97, 123)) * 20_000, b'"}')

    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.1)
        peer.request.body = await peer.reader.readexactly(
            int(peer.request.headers["content-length"])
        )
        await peer.answer()

    async with (
        serving(answer, reads_body=False) as server,
        Wire([Target(arm="a", url=server.url)]) as wire,
    ):
        outcome = await wire.call(request(body=prompt))
    assert (outcome.status, server.requests[0].body) == ("ok", b"".join(prompt))


async def test_an_answer_before_the_whole_body_was_sent_is_heard() -> None:
    async def answer(peer: Peer) -> None:
        await refuses_the_prompt(peer)
        await asyncio.sleep(0.1)
        peer.writer.close()

    async with (
        serving(answer, reads_body=False) as server,
        Wire([Target(arm="a", url=server.url)]) as wire,
    ):
        outcome = await wire.call(request(body=(b"x" * 30_000_000,)))
    assert (outcome.status, outcome.error, outcome.sent_ns) == (
        "http_error",
        "BadRequestError: too long",
        None,
    )


async def test_a_body_waits_for_the_server_to_expect_it() -> None:
    bodies: list[bytes] = []

    async def answer(peer: Peer) -> None:
        length = int(peer.request.headers["content-length"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.readexactly(1), 0.03)
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        bodies.append(await peer.reader.readexactly(length))
        await peer.answer()

    async with (
        serving(answer, reads_body=False) as server,
        Wire([Target(arm="a", url=server.url, expect_bytes=4)]) as wire,
    ):
        outcome = await wire.call(request(body=(b"12345678",)))
    assert (outcome.status, bodies, server.requests[0].headers["expect"]) == (
        "ok",
        [b"12345678"],
        "100-continue",
    )


async def test_a_body_that_the_server_does_not_want_is_not_sent() -> None:
    async def answer(peer: Peer) -> None:
        await is_full(peer)
        assert await peer.reader.read() == b""

    async with (
        serving(answer, reads_body=False) as server,
        Wire([Target(arm="a", url=server.url, expect_bytes=4)]) as wire,
    ):
        outcomes = [await wire.call(request(number, body=(b"12345678",))) for number in range(2)]
    assert [(outcome.status, outcome.sent_ns) for outcome in outcomes] == [("busy", None)] * 2
    # What the server expects on the first connection is still its body.
    assert [asked.connection for asked in server.requests] == [1, 2]


async def test_a_redirect_on_the_same_host_is_followed_and_remembered() -> None:
    async def answer(peer: Peer) -> None:
        if peer.request.line.startswith("POST /v1/"):
            await peer.send(
                b"HTTP/1.1 308 Permanent Redirect\r\nlocation: "
                b"/openai/v1/chat/completions\r\ncontent-length: 2\r\n\r\nhm"
            )
        else:
            await peer.answer()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(2)]
    assert [outcome.status for outcome in outcomes] == ["ok", "ok"]
    assert [asked.line.split()[1] for asked in server.requests] == [
        "/v1/chat/completions",
        "/openai/v1/chat/completions",
        "/openai/v1/chat/completions",
    ]
    assert server.requests[1].body == b'{"n":1}'


async def test_a_redirect_that_closes_the_connection_costs_one_attempt() -> None:
    async def answer(peer: Peer) -> None:
        if peer.request.line.startswith("POST /v1/"):
            await peer.send(
                b"HTTP/1.1 307 See There\r\nlocation: /v2/x\r\nconnection: "
                b"close\r\ncontent-length: 0\r\n\r\n"
            )
            peer.writer.close()
        else:
            await peer.answer()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(2)]
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [
        ("http_error", "HTTP 307"),
        ("ok", None),
    ]


async def test_a_server_that_redirects_in_a_circle_is_left() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(
            b"HTTP/1.1 307 Temporary Redirect\r\nlocation: "
            b"/v1/chat/completions\r\ncontent-length: 0\r\n\r\n"
        )

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.error) == ("http_error", "HTTP 307")


async def test_a_server_on_an_ipv6_address_is_reached() -> None:
    async with serving(Peer.answer, host="::1") as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.replica) == ("ok", f"[::1]:{server.port}")


async def test_a_server_on_a_unix_socket_is_reached_with_our_own_stamps(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serving(Peer.answer, path=path) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.replica, outcome.stamp_source) == ("ok", f"unix:{path}", "user")


def test_a_request_is_shown_without_its_prompt() -> None:
    shown = repr(request(7, body=(b'{"messages": "secret', b' words"}')))
    assert shown == "WireRequest(r7 to a/chat/completions, a body of 28 bytes)"
