import asyncio
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agentload.live.target import Target
from agentload.live.wire import Wire, WireFacts
from agentload.model.commands import Limits, Status
from tests.live.calls import MS, one_call, request
from tests.live.scripted import END, STREAM, Peer, good, serving, token, usage

pytestmark = pytest.mark.loopback

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
LINUX = sys.platform == "linux"


async def good_answer(peer: Peer) -> None:
    await peer.answer()


async def test_a_good_call_is_stamped_by_the_kernel_in_the_order_of_events() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for payload in good(3):
            await asyncio.sleep(0.005)
            await peer.events(payload)
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        called = request()
        outcome = await wire.call(called)
        now_ns = time.monotonic_ns()
        assert wire.facts() == WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0)
    assert (outcome.status, outcome.error, outcome.http_status, outcome.finish_reason) == ("ok", None, 200, "length")
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.token_rule, outcome.coalesced_reads) == (5, 3, "token_ids", 0)
    assert outcome.stamp_source == ("kernel" if LINUX else "user")
    assert outcome.reply is not None
    assert outcome.reply.text == "w0 w1 w2 "
    assert outcome.chunks is not None
    stamps_ns = outcome.chunks.ns()
    assert outcome.opened_ns is not None
    assert outcome.sent_ns is not None
    assert outcome.done_ns is not None
    in_order = [called.released_ns, outcome.opened_ns, outcome.sent_ns, *stamps_ns, outcome.done_ns, now_ns]
    assert in_order == sorted(in_order)
    assert all(after - before >= 4 * MS for before, after in pairwise(stamps_ns))


@pytest.mark.skipif(not LINUX, reason="only Linux stamps")
async def test_a_late_reader_does_not_move_the_stamps() -> None:
    written_ns: list[int] = []

    def serve(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            peer.recv(65536)
            peer.sendall(STREAM)
            for payload in good(2)[:2]:
                event = f"data: {json.dumps(payload)}\n\n".encode()
                written_ns.append(time.monotonic_ns())
                peer.sendall(b"%x\r\n%b\r\n" % (len(event), event))
                time.sleep(0.05)
            peer.sendall(END)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving_it = loop.run_in_executor(None, serve, listening)
        # The loop stands still from before the second chunk's arrival until long after it.
        loop.call_later(0.04, time.sleep, 0.04)
        outcome = await one_call(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        await serving_it
    assert outcome.chunks is not None
    assert [abs(stamp - truth) < 10 * MS for stamp, truth in zip(outcome.chunks.ns(), written_ns, strict=True)] == [True, True]


# --- every way to fail ---


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
    await peer.events(token("a"), {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}, "[DONE]")
    await peer.send(END)


async def is_full_in_band(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.events({"error": {"message": "queue full", "type": "Service Unavailable", "code": 503}}, "[DONE]")
    await peer.send(END)


async def is_full(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}")


async def refuses_the_prompt(peer: Peer) -> None:
    body = b'{"error":{"message":"too long","type":"BadRequestError","code":400}}'
    await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def redirects_elsewhere(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://elsewhere.invalid/v1\r\ncontent-length: 0\r\n\r\n")


async def speaks_no_http(peer: Peer) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    await peer.hang()


async def sends_a_page(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>")


async def compresses(peer: Peer) -> None:
    await peer.send(STREAM.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + b"2\r\n\x1f\x8b\r\n" + END)


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
    (closes_before_the_head, "reset", "the server closed the connection before any byte of the answer"),
    (never_answers, "first_timeout", "no byte of the answer in time"),
    (sends_only_the_head, "first_timeout", "no byte of the answer in time"),
    (stalls, "idle_timeout", "the stream went silent"),
    (drips, "total_timeout", "the answer took too long"),
    (closes_in_mid_stream, "truncated", "the connection ended before the answer did"),
    (resets_in_mid_stream, "reset", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    (ends_without_a_finish_reason, "truncated", "the answer has no finish_reason"),
    (answers_nothing, "truncated", "the answer has no finish_reason"),
    (fails_in_band, "stream_error", "InternalServerError: engine died"),
    (is_full_in_band, "busy", "Service Unavailable: queue full"),
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


@pytest.mark.parametrize(("answer", "status", "error"), FAILURES, ids=lambda value: getattr(value, "__name__", None))
async def test_every_failure_is_told_apart(answer: Callable[[Peer], Awaitable[None]], status: Status, error: str | None) -> None:
    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.error) == (status, error)
    assert outcome.reply is None


async def test_a_port_where_nobody_listens_refuses() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outcome = await one_call(f"http://127.0.0.1:{port}/v1")
    assert outcome.status == "refused"
    assert outcome.error == f"nobody listens at 127.0.0.1:{port}: [Errno 111] Connect call failed ('127.0.0.1', {port})"


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
        outcome = await one_call(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")
    assert (outcome.status, outcome.error) == ("connect_timeout", "no connection in time")


async def test_a_secret_that_the_server_echoes_is_not_kept() -> None:
    async def answer(peer: Peer) -> None:
        said = f"no such key: {peer.request.headers['authorization']} {peer.request.headers['x-tenant']}"
        body = json.dumps({"error": {"message": said, "type": "AuthError"}}).encode()
        await peer.send(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    secrets = {"X-Tenant": "forty thieves", "X-Priority": "e"}
    async with serving(answer) as server, Wire([Target(arm="a", url=server.url, api_key="opensesame", headers=secrets)]) as wire:
        outcome = await wire.call(request())
    assert (outcome.status, outcome.error) == ("http_error", "AuthError: no such key: *** ***")


# --- cancelling ---


async def test_a_watched_call_is_told_its_tokens_and_can_be_cancelled_after_some() -> None:
    async with serving(drips) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        seen: list[int] = []

        def on_tokens(tokens: int) -> None:
            seen.append(tokens)
            if tokens == 3:
                wire.cancel("r0")

        outcome = await wire.call(replace(request(tokens=100), on_tokens=on_tokens))
    assert (outcome.status, outcome.output_tokens, seen) == ("cancelled", 3, [1, 2, 3])


async def test_a_call_is_stopped_while_it_waits_for_its_connection() -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        async with Wire([Target(arm="a", url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")]) as wire:
            asyncio.get_running_loop().call_later(0.02, wire.cancel, "r0", "stopped")
            outcome = await wire.call(request())
    assert outcome.status == "stopped"


async def test_closing_the_wire_stops_what_is_in_flight() -> None:
    async with serving(never_answers) as server:
        wire = Wire([Target(arm="a", url=server.url)])
        asyncio.get_running_loop().call_later(0.05, wire.close)
        outcome = await wire.call(request())
    assert outcome.status == "stopped"


async def test_cancelling_a_call_that_has_ended_changes_nothing() -> None:
    async with serving(good_answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request())
        wire.cancel("r0")
        wire.cancel("never heard of")
    assert outcome.status == "ok"


async def test_a_cancelled_task_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.hang()
        gone.set()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await wire.call(request())
        await asyncio.wait_for(gone.wait(), 1)


# --- forms of answers ---


async def test_an_answer_that_never_ends_is_over_soon_after_its_end_mark() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*good(3))
        await peer.hang()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        called = request(limits=Limits())
        outcome = await wire.call(called)
        waited_ns = time.monotonic_ns() - called.released_ns
    assert (outcome.status, outcome.done_ns) == ("ok", outcome.last_ns)
    assert waited_ns < 3_000 * MS


async def test_an_answer_of_an_old_server_ends_with_its_connection() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for payload in (WIRE / "transformers_chat.sse").read_bytes().split(b"\n\n"):
            await peer.send(payload + b"\n\n")
        peer.writer.close()

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.token_rule, outcome.prompt_tokens) == ("ok", "usage", 9)


async def test_a_missing_end_mark_truncates_once_the_server_is_known_to_send_them() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*(good(3) if peer.number == 2 else good(3)[:-1]))
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(3)]
    assert [outcome.status for outcome in outcomes] == ["ok", "ok", "truncated"]


async def test_an_answer_that_is_not_streamed_is_read_whole() -> None:
    async def answer(peer: Peer) -> None:
        body = (WIRE / "vllm_chat.json").read_bytes()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request(is_streamed=False, tokens=4))
    assert (outcome.status, outcome.output_tokens, outcome.chunks, outcome.first_ns) == ("ok", 4, None, None)


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_bytes_that_come_in_crumbs_say_the_same(size: int) -> None:
    async def answer(peer: Peer) -> None:
        events = b"".join(b"data: %b\n\n" % payload for payload in (b'{"choices":[{"delta":{"content":"\xc3\xa9"}}]}',) * 2)
        finish = (
            b'data: {"choices":[{"delta":{"content":"!"},"finish_reason":"length"}],"usage":{"completion_tokens":3}}\n\ndata: [DONE]\n\n'
        )
        stream = STREAM + b"%x\r\n%b\r\n" % (len(events + finish), events + finish) + END
        for start in range(0, len(stream), size):
            await peer.send(stream[start : start + size])
            await asyncio.sleep(0)

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.output_tokens, outcome.reply and outcome.reply.text) == ("ok", 3, "éé!")


async def test_a_head_that_comes_long_before_the_first_token_does_not_start_the_idle_limit() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await asyncio.sleep(0.25)  # longer than the idle limit, shorter than the limit of the first byte
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert outcome.status == "ok"


async def test_pings_keep_a_stream_alive_and_are_no_tokens() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for _ in range(3):
            await peer.send(b"8\r\n: ping\n\n\r\n")
            await asyncio.sleep(0.1)
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.output_tokens, len(outcome.chunks or ())) == ("ok", 3, 3)


# --- long bodies ---


async def test_a_body_of_half_a_megabyte_arrives_whole_at_a_slow_server() -> None:
    prompt = (b'{"messages":"', bytes(range(97, 123)) * 20_000, b'"}')

    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.1)
        peer.request.body = await peer.reader.readexactly(int(peer.request.headers["content-length"]))
        await peer.answer()

    async with serving(answer, reads_body=False) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request(body=prompt))
    assert (outcome.status, server.requests[0].body) == ("ok", b"".join(prompt))


async def test_an_answer_before_the_whole_body_was_sent_is_heard() -> None:
    async def answer(peer: Peer) -> None:
        await refuses_the_prompt(peer)
        await asyncio.sleep(0.1)
        peer.writer.close()

    async with serving(answer, reads_body=False) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request(body=(b"x" * 30_000_000,)))
    assert (outcome.status, outcome.error, outcome.sent_ns) == ("http_error", "BadRequestError: too long", None)


async def test_a_body_waits_for_the_server_to_expect_it() -> None:
    bodies: list[bytes] = []

    async def answer(peer: Peer) -> None:
        length = int(peer.request.headers["content-length"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.readexactly(1), 0.03)
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        bodies.append(await peer.reader.readexactly(length))
        await peer.answer()

    async with serving(answer, reads_body=False) as server, Wire([Target(arm="a", url=server.url, expect_bytes=4)]) as wire:
        outcome = await wire.call(request(body=(b"12345678",)))
    assert (outcome.status, bodies, server.requests[0].headers["expect"]) == ("ok", [b"12345678"], "100-continue")


async def test_a_body_that_the_server_does_not_want_is_not_sent() -> None:
    async def answer(peer: Peer) -> None:
        await is_full(peer)
        assert await peer.reader.read() == b""

    async with serving(answer, reads_body=False) as server, Wire([Target(arm="a", url=server.url, expect_bytes=4)]) as wire:
        outcome = await wire.call(request(body=(b"12345678",)))
    assert (outcome.status, outcome.sent_ns) == ("busy", None)


# --- redirects ---


async def test_a_redirect_on_the_same_host_is_followed_and_remembered() -> None:
    async def answer(peer: Peer) -> None:
        if peer.request.line.startswith("POST /v1/"):
            await peer.send(b"HTTP/1.1 308 Permanent Redirect\r\nlocation: /openai/v1/chat/completions\r\ncontent-length: 2\r\n\r\nhm")
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
            await peer.send(b"HTTP/1.1 307 See There\r\nlocation: /v2/x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            peer.writer.close()
        else:
            await peer.answer()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number)) for number in range(2)]
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [("http_error", "HTTP 307"), ("ok", None)]


async def test_a_server_that_redirects_in_a_circle_is_left() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/chat/completions\r\ncontent-length: 0\r\n\r\n")

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.error) == ("http_error", "HTTP 307")


# --- addresses ---


async def test_a_server_on_an_ipv6_address_is_reached() -> None:
    async with serving(good_answer, host="::1") as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.replica) == ("ok", f"[::1]:{server.port}")


async def test_a_server_on_a_unix_socket_is_reached_with_our_own_stamps(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    async with serving(good_answer, path=path) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.replica, outcome.stamp_source) == ("ok", f"unix:{path}", "user")


async def test_many_streams_at_once_lose_no_chunk() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for payload in good(20):
            await peer.events(payload)
            await asyncio.sleep(0.002)
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = await asyncio.gather(*(wire.call(request(n, session=str(n), tokens=20, limits=Limits())) for n in range(64)))
    assert {(outcome.status, outcome.output_tokens, len(outcome.chunks or ())) for outcome in outcomes} == {("ok", 20, 20)}
