"""Every way in which a call can fail has its
status, and no secret is kept of what a server says.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

import pytest

from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.commands import Limits, Status
from tests.live.calls import PATIENT, hasty, one_call, request
from tests.live.scripted import END, STREAM, Peer, serving, token, usage

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]


async def resets_before_the_head(peer: Peer) -> None:
    peer.reset()


async def closes_before_the_head(peer: Peer) -> None:
    peer.writer.close()


async def never_answers(peer: Peer) -> None:
    await peer.hang()


async def sends_only_the_head(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.hang()


async def stalls(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(token("a"))
    await peer.hang()


async def drips(peer: Peer) -> None:
    await peer.send(STREAM)
    while True:
        await peer.events(token("a"))
        await asyncio.sleep(0.05)


async def closes_in_mid_stream(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(token("a"))
    peer.writer.close()


async def resets_in_mid_stream(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(token("a"))
    await asyncio.sleep(0.05)
    peer.reset()


async def ends_without_a_finish_reason(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(token("a"), "[DONE]")
    await peer.send(END)


async def answers_nothing(peer: Peer) -> None:
    await peer.send(STREAM + END)


async def fails_in_band(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(
        token("a"),
        {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}},
        "[DONE]",
    )
    await peer.send(END)


async def is_full_in_band(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(
        {"error": {"message": "queue full", "type": "Service Unavailable", "code": 503}}, "[DONE]"
    )
    await peer.send(END)


async def is_full(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}")


async def refuses_the_prompt(peer: Peer) -> None:
    body = b'{"error":{"message":"too long","type":"BadRequestError","code":400}}'
    await peer.send(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "
        b"%d\r\n\r\n%b" % (len(body), body)
    )


async def redirects_elsewhere(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 307 Temporary Redirect\r\nlocation: "
        b"http://elsewhere.invalid/v1\r\ncontent-length: 0\r\n\r\n"
    )


async def speaks_no_http(peer: Peer) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    await peer.hang()


async def sends_a_page(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"
    )


async def compresses(peer: Peer) -> None:
    await peer.send(
        STREAM.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
        + b"2\r\n\x1f\x8b\r\n"
        + END
    )


async def stops_early(peer: Peer) -> None:
    await peer.answer(2)


async def goes_on(peer: Peer) -> None:
    await peer.answer(4)


async def repeats_itself(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events(token("!" * 200, finish="length", ids=3), usage(3), "[DONE]")
    await peer.send(END)


FAILURES: list[tuple[Callable[[Peer], Awaitable[None]], Status, str | None]] = [
    (resets_before_the_head, "reset", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    (
        closes_before_the_head,
        "reset",
        "the server closed the connection before any byte of the answer",
    ),
    (never_answers, "first_timeout", "no byte of the answer in time"),
    (sends_only_the_head, "first_timeout", "no byte of the answer in time"),
    (stalls, "idle_timeout", "the stream went silent"),
    (drips, "total_timeout", "the answer took too long"),
    (closes_in_mid_stream, "truncated", "the connection ended before the answer did"),
    (resets_in_mid_stream, "reset", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    (ends_without_a_finish_reason, "truncated", "the answer has no finish_reason"),
    (answers_nothing, "truncated", "the answer has no finish_reason"),
    (fails_in_band, "stream_error", "InternalServerError: engine died"),
    (is_full_in_band, "busy", "503 Service Unavailable: queue full"),
    (is_full, "busy", "error: {}"),
    (refuses_the_prompt, "http_error", "BadRequestError: too long"),
    (redirects_elsewhere, "http_error", "HTTP 307"),
    (speaks_no_http, "unreadable", "this is not HTTP: Expected HTTP/, RTSP/ or ICE/"),
    (sends_a_page, "unreadable", "the answer is of type 'text/html'"),
    (compresses, "unreadable", "the answer is encoded as 'gzip', which was not asked for"),
    (stops_early, "short", "2 tokens where 3 were forced (length)"),
    (goes_on, "long", "4 tokens where 3 were asked"),
    (repeats_itself, "garbage", "repetition: nothing but '!'"),
]


ENDING: dict[Status, Limits] = {
    "first_timeout": hasty("first"),
    "idle_timeout": hasty("idle"),
    "total_timeout": hasty("total"),
}


@pytest.mark.parametrize(
    ("answer", "status", "error"), FAILURES, ids=lambda value: getattr(value, "__name__", None)
)
async def test_every_failure_is_told_apart(
    answer: Callable[[Peer], Awaitable[None]], status: Status, error: str | None
) -> None:
    async with serving(answer) as server:
        outcome = await one_call(server.url, limits=ENDING.get(status, PATIENT))
    assert (outcome.status, outcome.error) == (status, error)
    assert outcome.reply is None


async def test_a_port_where_nobody_listens_refuses() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outcome = await one_call(f"http://127.0.0.1:{port}/v1")
    assert outcome.status == "refused"
    assert outcome.error == (
        f"nobody listens at 127.0.0.1:{port}: [Errno 111] Connect call failed ('127.0.0.1', {port})"
    )


async def test_a_name_that_does_not_resolve_refuses() -> None:
    outcome = await one_call("http://no-such-host.invalid/v1")
    assert outcome.status == "refused"
    assert outcome.error is not None
    assert outcome.error.startswith("the name 'no-such-host.invalid' does not resolve: ")


async def test_a_server_that_accepts_nobody_runs_into_the_connect_limit() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):  # fill the queue of connections that nobody accepts
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        outcome = await one_call(url, limits=hasty("connect"))
    assert (outcome.status, outcome.error) == ("connect_timeout", "no connection in time")


async def test_a_secret_that_the_server_echoes_is_not_kept() -> None:
    async def answer(peer: Peer) -> None:
        said = (
            f"no such key: {peer.request.headers['authorization']} "
            f"{peer.request.headers['x-tenant']}"
        )
        body = json.dumps({"error": {"message": said, "type": "AuthError"}}).encode()
        await peer.send(
            b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )

    secrets = {"X-Tenant": "forty thieves", "X-Priority": "e"}
    async with (
        serving(answer) as server,
        Wire([Target(arm="a", url=server.url, api_key="opensesame", headers=secrets)]) as wire,
    ):
        outcome = await wire.call(request())
    assert (outcome.status, outcome.error) == ("http_error", "AuthError: no such key: *** ***")
