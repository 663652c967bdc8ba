"""What the thread that reads sockets does that the interpreter does not, and that both say the same."""

import asyncio
import contextlib
import ctypes
import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentload.compiled import PURE
from agentload.dispatch.call import CallMachine, CallTerms
from agentload.live import reader
from agentload.live.channel import Channel
from agentload.live.exchange import Exchange, Memory
from agentload.live.hub import Hub, ReadPath
from agentload.live.pump import Pump
from agentload.live.reader import BYTES, SocketReader, watcher, who_reads
from agentload.live.stamps import StampClock
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits, Outcome
from tests.live.calls import MS, request
from tests.live.certificates import Certificates, made
from tests.live.hostility import DONE, TOKENS, event
from tests.live.scripted import END, STREAM, Peer, good, serving, token, usage

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has epoll"),
]
BY_THREAD = pytest.mark.parametrize("read_path", ["thread"], indirect=True)
PATIENT = Limits(
    connect_ns=20_000 * MS, first_ns=20_000 * MS, idle_ns=20_000 * MS, total_ns=60_000 * MS
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Bytes(asyncio.Protocol):
    """Answer each request with the same bytes, cut in the same places."""

    def __init__(self, pieces: tuple[bytes, ...], pauses_s: tuple[float, ...]) -> None:
        self._pieces, self._pauses_s = pieces, pauses_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if b"\r\n\r\n" in data:
            self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self) -> None:
        assert isinstance(self._transport, asyncio.Transport)
        for piece, pause_s in zip(self._pieces, self._pauses_s, strict=True):
            self._transport.write(piece)
            if pause_s:
                await asyncio.sleep(pause_s)
        self._transport.close()


# Whole answers, good and bad, in chunks of one event or several, or of another framing.
EVENTS = st.lists(
    st.sampled_from(
        [
            *(event(each) for each in good(3)[:-1]),
            event(token("é" * 40)),
            event(token("", finish="stop")),
            event(usage(4)),
            event({"error": {"message": "no", "code": 503}}),
            event({"choices": [{"index": 1, "delta": {"content": "other"}}]}),
            event(b"{broken"),
            b": a comment\n\n",
            b"data: {\ndata: }\n\n",
            b"event: x\r\ndata: [DONE]\r\n\r\n",
            DONE,
            TOKENS,
            b"0\r\n\r\n",
        ]
    ),
    max_size=8,
)
HEADS = st.sampled_from(
    [
        STREAM,
        STREAM,
        STREAM,
        STREAM.replace(b"chunked", b"CHUNKED"),
        STREAM.replace(b"transfer-encoding", b"Transfer-Encoding"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM,
        STREAM.replace(b"200 OK", b"503 No"),
        STREAM.replace(b"transfer-encoding: chunked", b"x-transfer-encoding: chunked"),
        STREAM.replace(b"chunked", b"chunked-not"),
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        b"garbage\r\n\r\n",
    ]
)
ENDS = st.sampled_from([END, END, END, b"", b"0\r\nx: y\r\n\r\n", END + b"more", b"zz\r\n"])


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, ...]:
    head, events, end = draw(HEADS), draw(EVENTS), draw(ENDS)
    are_chunked = b"hunked\r\n" in head.lower() or b"hunked-" in head.lower()
    body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) if are_chunked else each for each in events)
    whole = head + body + end
    places = draw(st.lists(st.integers(1, max(1, len(whole) - 1)), max_size=12))
    cuts = [0, *sorted(set(places)), len(whole)]
    return tuple(whole[start:end] for start, end in pairwise(cuts) if end > start)


def said_of(outcome: Outcome) -> tuple[object, ...]:
    """What an outcome says whatever the instants were."""
    return (
        outcome.status,
        outcome.error,
        outcome.http_status,
        outcome.finish_reason,
        outcome.reply,
        outcome.token_rule,
        (outcome.prompt_tokens, outcome.cached_tokens, outcome.output_tokens),
        None if outcome.chunks is None else outcome.chunks.token_counts(),
        outcome.stamp_source,
    )


async def outcome_of(
    path: ReadPath, pieces: tuple[bytes, ...], pauses_s: tuple[float, ...], ahead_ms: int
) -> tuple[Outcome, int]:
    """Call a server that answers with these pieces; return how often it was connected to."""
    connections = 0

    def served() -> Bytes:
        nonlocal connections
        connections += 1
        return Bytes(pieces, pauses_s)

    server = await asyncio.get_running_loop().create_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Wire([Target(arm="a", url=f"http://127.0.0.1:{port}/v1")]) as wire:
        assert wire.facts().read_path == path
        called = request(limits=PATIENT, tokens=5)
        called = replace(called, released_ns=called.released_ns + ahead_ms * MS)
        outcome = await wire.call(called)
        assert outcome.sent_ns is not None
        assert called.released_ns <= outcome.sent_ns
    return outcome, connections


def compared(
    monkeypatch: pytest.MonkeyPatch,
    pieces: tuple[bytes, ...],
    pauses_s: tuple[float, ...],
    ahead_ms: int,
) -> None:
    found = []
    for path, pure in (("interpreter", "1"), ("thread", "0")):
        monkeypatch.setenv(PURE, pure)
        reader.load_native.cache_clear()
        assert path in {"interpreter", "thread"}
        found.append(asyncio.run(outcome_of(path, pieces, pauses_s, ahead_ms)))  # type: ignore[arg-type]
    assert said_of(found[0][0]) == said_of(found[1][0])
    assert found[0][1] == found[1][1]


@BY_THREAD
@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pieces=answers(), data=st.data())
def test_an_answer_in_any_pieces_has_the_same_outcome_on_both_paths(
    monkeypatch: pytest.MonkeyPatch,
    read_path: ReadPath,
    pieces: tuple[bytes, ...],
    data: st.DataObject,
) -> None:
    pauses = st.sampled_from([0.0, 0.0, 0.0005, 0.002])
    pauses_s = data.draw(st.tuples(*(pauses for _ in pieces)))
    compared(monkeypatch, pieces, pauses_s, data.draw(st.sampled_from([0, 5])))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    return made(tmp_path_factory.mktemp("tls"))


@pytest.mark.usefixtures("read_path")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_only_the_thread_gives_each_chunk_its_own_stamp_while_python_is_held(
    read_path: ReadPath, scheme: str, certificates: Certificates
) -> None:
    tokens = 25

    def serve(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "https":
            peer = certificates.server_context().wrap_socket(peer, server_side=True)
        with peer:
            peer.recv(65536)
            peer.sendall(STREAM)
            for payload in good(tokens):
                sent = event(payload if isinstance(payload, dict) else b"[DONE]")
                peer.sendall(b"%x\r\n%b\r\n" % (len(sent), sent))
                time.sleep(0.02)
            peer.sendall(END)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = loop.run_in_executor(None, serve, listening)
        url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/v1"
        trusted = context(authority=certificates.authority) if scheme == "https" else None
        async with Wire([Target(arm="a", url=url, tls=trusted)]) as wire:
            await wire.ready("a", "s")
            loop.call_later(0.1, time.sleep, 0.3)
            outcome = await wire.call(request(limits=PATIENT, tokens=tokens))
        await served
    assert (outcome.status, outcome.stamp_source) == ("ok", "kernel")
    assert outcome.coalesced_reads is not None
    if read_path == "interpreter":
        assert outcome.coalesced_reads > 5
    else:
        assert outcome.coalesced_reads <= 1  # the machine may hold the thread too


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
    return replace(request(number, limits=PATIENT, body=(body,)), released_ns=due_ns)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_only_the_thread_sends_what_is_known_ahead_in_time_while_python_is_held(
    read_path: ReadPath, scheme: str, certificates: Certificates
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer(3)

    tls = certificates.server_context() if scheme == "https" else None
    trusted = context(authority=certificates.authority) if scheme == "https" else None
    async with (
        serving(answer, tls=tls) as server,
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
    async def answer(peer: Peer) -> None:
        await peer.answer(3)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        assert (await wire.call(ahead(wire, 1, 20))).status == "ok"
        called = asyncio.create_task(wire.call(ahead(wire, 2, 500)))
        await asyncio.sleep(0.03)
        wire.cancel("r2")
        outcome = await called
        assert (outcome.status, outcome.sent_ns) == ("cancelled", None)
        await asyncio.sleep(0.55)
        assert len(server.requests) == 1
        assert (await wire.call(ahead(wire, 3, 20))).status == "ok"
        assert (len(server.requests), server.connections) == (2, 2)


async def test_a_wire_that_closes_before_an_instant_sends_nothing(read_path: ReadPath) -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer(3)

    async with serving(answer) as server:
        async with Wire([Target(arm="a", url=server.url)]) as wire:
            called = asyncio.create_task(wire.call(ahead(wire, 1, 400)))
            await asyncio.sleep(0.03)
        outcome = await called
        assert (outcome.status, outcome.sent_ns) == ("stopped", None)
        await asyncio.sleep(0.45)
        assert server.requests == []


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_kept_connection_that_ends_before_an_instant_is_found_at_the_instant(
    read_path: ReadPath, *, is_broken: bool
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer(3)
        await asyncio.sleep(0.3)
        if is_broken:
            peer.reset()
        else:
            peer.writer.close()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        assert (await wire.call(ahead(wire, 1, 0))).status == "ok"
        called = ahead(wire, 2, 700)
        outcome = await wire.call(called)
        assert outcome.status == "reset"
        assert outcome.done_ns is not None
        assert outcome.done_ns >= called.released_ns
        assert (await wire.call(ahead(wire, 3, 10))).status == "ok"
        assert server.connections == 2


@BY_THREAD
async def test_a_forked_process_leaves_what_its_parent_sends_alone(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    watching = SocketReader()
    at_ns = time.monotonic_ns() + 200 * MS
    stream = watching.send(ours.fileno(), lambda: None, [b"wh", b"ole"], at_ns)
    child = os.fork()
    if child == 0:
        stream.take()
        watching.leave(ours.fileno())
        watching.close()
        os._exit(0)
    _, ended = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    async with asyncio.timeout(10):
        assert await asyncio.get_running_loop().sock_recv(theirs, 64) == b"whole"
    assert stream.take() == []
    begun_ns, left_ns, count = stream.written
    assert at_ns <= begun_ns <= left_ns
    assert count == 5
    assert stream.take() == []
    assert stream.written == (0, 0, 0)
    watching.leave(ours.fileno())
    watching.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        watching.send(ours.fileno(), lambda: None, [b"x"], at_ns)


@BY_THREAD
async def test_requests_leave_in_the_order_of_their_instants(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    watching = SocketReader()
    now_ns = time.monotonic_ns()
    files = [os.dup(ours.fileno()) for _ in range(200)]
    order = [number * 77 % 200 for number in range(200)]
    for number in order:
        at_ns = now_ns + (600 + number) * MS // 2
        watching.send(files[number], lambda: None, [b"%03d" % number], at_ns)
    found = b""
    async with asyncio.timeout(10):
        while len(found) < 600:
            found += await asyncio.get_running_loop().sock_recv(theirs, 1024)
    assert found == b"".join(b"%03d" % number for number in range(200))
    watching.close()
    for file in files:
        os.close(file)


@BY_THREAD
async def test_a_server_that_floods_is_not_read_until_what_it_sent_was_taken(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    watching = SocketReader()
    woken = asyncio.Event()
    stream = watching.watch(ours.fileno(), woken.set)
    theirs.setblocking(False)
    sent = 0
    for _ in range(50):
        await asyncio.sleep(0.002)
        try:
            while True:
                sent += theirs.send(b"x" * 8192)
        except BlockingIOError:
            pass
    assert woken.is_set()
    before = sent
    received = sum(len(data) for _, _, data in stream.take())
    assert 32 << 10 <= received <= BYTES
    assert stream.is_urgent
    while received < before:
        await asyncio.sleep(0.002)
        reads = stream.take()
        received += sum(len(data) for _, _, data in reads)
    assert received == before
    watching.leave(ours.fileno())
    watching.close()


@BY_THREAD
async def test_a_slow_stream_is_told_of_within_half_a_second(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    watching = SocketReader()
    woken = asyncio.Event()
    stream = watching.watch(ours.fileno(), woken.set)
    stream.expect(1000, is_eager=False)
    theirs.send(STREAM)
    for _ in range(12):  # never silent for long
        await asyncio.sleep(0.1)
        if woken.is_set():
            break
        theirs.send(b"1\r\nx\r\n")
    assert woken.is_set()
    assert stream.take()[0][2] == STREAM
    watching.leave(ours.fileno())
    watching.close()


@BY_THREAD
async def test_reads_come_in_order_with_an_end_and_a_failure_comes_last(
    read_path: ReadPath,
) -> None:
    watching = SocketReader()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for ends_well in (True, False):
            with socket.create_connection(server.getsockname()) as ours:
                ours.setblocking(False)
                theirs, _ = server.accept()
                woken = asyncio.Event()
                stream = watching.watch(ours.fileno(), woken.set)
                stream.expect(1000, is_eager=True)
                found: list[bytes] = []
                with theirs:
                    for number in range(3):
                        theirs.sendall(b"%d" % number)
                        await asyncio.wait_for(woken.wait(), 10)
                        woken.clear()
                        found += [data for _, _, data in stream.take()]
                    if not ends_well:
                        ours.send(b"unread, so that the close is a reset")
                        await asyncio.sleep(0.05)
                await asyncio.wait_for(woken.wait(), 10)
                if ends_well:
                    found += [data for _, _, data in stream.take()]
                    assert found == [b"0", b"1", b"2", b""]
                else:
                    with pytest.raises(ConnectionResetError):
                        stream.take()
                watching.leave(ours.fileno())
    watching.close()


@BY_THREAD
async def test_what_was_read_and_not_taken_is_there_after_leaving(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    watching = SocketReader()
    stream = watching.watch(ours.fileno(), lambda: None)
    theirs.send(b"late")
    await asyncio.sleep(0.05)
    watching.leave(ours.fileno())
    theirs.send(b"later")
    await asyncio.sleep(0.05)
    assert [data for _, _, data in stream.take()] == [b"late"]
    assert stream.take() == []
    assert ours.recv(9) == b"later"
    watching.leave(ours.fileno())  # a second time changes nothing
    watching.close()
    watching.close()
    assert stream.take() == []


class Behind:
    """Read a whole answer, and behind it what comes before the socket is left."""

    path: ReadPath = "thread"
    lead_ns: int = 0
    is_urgent: bool = True
    sent: tuple[int, int, int] | None = None
    writes: bool = False
    written: tuple[int, int, int] = (0, 0, 0)

    def __init__(self, answer: bytes, behind: bytes) -> None:
        self._reads = [answer]
        self._behind = [behind] if behind else []

    def watch(self, file: int, callback: object) -> "Behind":
        return self

    def send(self, file: int, callback: object, parts: object, at_ns: int) -> None:
        pass

    def take(self) -> list[tuple[int, int, bytes]]:
        reads, self._reads = self._reads, []
        return [(0, time.monotonic_ns(), data) for data in reads]

    def leave(self, file: int) -> None:
        self._reads = self._behind

    def expect(self, reads: int, *, is_eager: bool) -> None:
        pass

    def hasten(self, file: int) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("behind", [b"", b"more"])
async def test_what_was_read_behind_an_answer_closes_its_connection(
    ends: tuple[socket.socket, socket.socket], behind: bytes
) -> None:
    clock, pump = StampClock(), Pump()
    machine = CallMachine(released_ns=clock.now_ns(), limits=PATIENT, asked=CallTerms(tokens=3))
    machine.opened(clock.now_ns())
    exchange = Exchange(
        Channel(ends[0], clock=clock, peer="p"),
        machine,
        clock=clock,
        hub=Behind(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}",
            behind,
        ),
        pump=pump,
        memory=Memory(),
        own_bytes=1 << 20,
    )
    exchange.start(b"POST", [b"body"], expects=False)
    exchange._readable()
    assert exchange.ended.done()
    assert exchange.is_reusable == (not behind)
    pump.close()


@BY_THREAD
@pytest.mark.parametrize(
    ("data", "is_urgent"),
    [
        (STREAM, False),
        (STREAM + event(token("w")), False),
        (STREAM.replace(b"transfer-encoding: chunked", b"Transfer-Encoding:CHUNKED"), False),
        (STREAM + END, True),
        (STREAM[:-1], True),
        (STREAM.replace(b"200 OK", b"503 No"), True),
        (STREAM.replace(b"HTTP/1.1", b"HTTP/1.0"), True),
        (STREAM.replace(b"chunked", b"chunked-not"), True),
        (STREAM.replace(b"transfer", b"x-transfer"), True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM, True),
        (b"garbage", True),
    ],
)
async def test_all_but_the_head_of_a_stream_is_looked_at_at_once(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket], data: bytes, is_urgent: object
) -> None:
    watching = SocketReader()
    stream = watching.watch(ends[0].fileno(), lambda: None)
    ends[1].send(data)
    async with asyncio.timeout(10):
        while not (reads := stream.take()):  # noqa: ASYNC110  # nobody announces a silent read
            await asyncio.sleep(0.001)
    assert [each for _, _, each in reads] == [data]
    assert stream.is_urgent == is_urgent
    watching.leave(ends[0].fileno())
    watching.close()


@BY_THREAD
async def test_one_mistake_of_a_callback_makes_nobody_deaf(read_path: ReadPath) -> None:
    watching = SocketReader()
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(context["exception"])
    )
    pairs = [socket.socketpair() for _ in range(3)]
    heard: list[int] = []

    def callback(number: int) -> None:
        if number == 0:
            raise ZeroDivisionError
        heard.append(number)

    for number, (ours, theirs) in enumerate(pairs):
        # a default is no parameter
        watching.watch(ours.fileno(), lambda number=number: callback(number))  # type: ignore[misc]
        theirs.send(b"no head of a stream")
    async with asyncio.timeout(10):
        while sorted(heard) != [1, 2]:  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(0.01)
    assert [type(mistake) for mistake in mistakes] == [ZeroDivisionError]
    watching.close()
    for pair in pairs:
        for each in pair:
            each.close()


@BY_THREAD
async def test_a_stream_waits_once_for_its_callback_and_one_turn_is_pending(
    read_path: ReadPath,
) -> None:
    watching = SocketReader()
    pairs = [socket.socketpair() for _ in range(40)]

    def callback(number: int) -> None:
        streams[number].take()
        time.sleep(0.001)

    streams = [
        # a default is no parameter
        watching.watch(ours.fileno(), lambda number=number: callback(number))  # type: ignore[misc]
        for number, (ours, _) in enumerate(pairs)
    ]
    for stream in streams:
        stream.expect(1000, is_eager=True)
    most_turns = most_waiting = 0
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        for _, theirs in pairs:
            theirs.send(b"x")
        await asyncio.sleep(0)
        turns = [each for each in _pending() if each == watching._woken]
        most_turns = max(most_turns, len(turns))
        most_waiting = max(most_waiting, len(watching._waiting))
    watching.close()
    for pair in pairs:
        for each in pair:
            each.close()
    assert most_turns <= 2  # the bell's and our own
    assert 1 < most_waiting <= len(pairs)


def _pending() -> list[object]:
    """Return what the loop calls in its next turn."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    return [each._callback for each in ready if not each.cancelled()]


@pytest.mark.usefixtures("read_path")
async def test_a_call_whose_socket_cannot_be_watched_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer(3)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        monkeypatch.setattr(wire._hub, "watch", full)
        if wire._hub.path == "thread":
            monkeypatch.setattr(wire._hub, "send", full)
        soon = replace(request(limits=PATIENT), released_ns=wire.clock.now_ns() + 50 * MS)
        async with asyncio.timeout(10):
            outcome = await wire.call(soon)
        assert outcome.status == "reset"
        assert (outcome.done_ns or 0) >= soon.released_ns
        assert "No space left on device" in (outcome.error or "")
        monkeypatch.undo()
        async with asyncio.timeout(10):
            assert (await wire.call(request(limits=PATIENT))).status == "ok"


@pytest.mark.usefixtures("read_path")
async def test_a_wire_that_closes_in_mid_call_ends_it() -> None:
    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.2)

    async with serving(answer) as server:
        async with Wire([Target(arm="a", url=server.url)]) as wire:
            called = asyncio.create_task(wire.call(request(limits=PATIENT)))
        async with asyncio.timeout(10):
            assert (await called).status != "ok"


@BY_THREAD
async def test_a_closed_reader_watches_nothing(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    watching = SocketReader()
    stream = watching.watch(ends[0].fileno(), lambda: None)
    watching.close()
    watching._woken()  # as one that was pending
    stream.expect(0, is_eager=True)
    assert stream.take() == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        watching.watch(ends[0].fileno(), lambda: None)


@pytest.mark.usefixtures("read_path")
async def test_a_connection_that_fails_before_any_answer_keeps_its_send_stamp() -> None:
    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.1)
        peer.reset()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        assert (await wire.call(request(limits=PATIENT))).status == "reset"
        assert wire.facts().unstamped_sends == 0


@BY_THREAD
async def test_a_file_that_cannot_be_read_is_an_error(read_path: ReadPath) -> None:
    watching = SocketReader()
    with pytest.raises(OSError, match="Bad file descriptor"):
        watching.watch(1 << 20, lambda: None)
    watching.close()


@BY_THREAD
async def test_a_forked_process_leaves_the_thread_of_its_parent_alone(read_path: ReadPath) -> None:
    async def answer(peer: Peer) -> None:
        await peer.answer(3)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                wire._hub.close()
                asyncio.events._set_running_loop(None)
                code = 0 if asyncio.run(_called_from_a_child(server.url)) else 2
            finally:
                os._exit(code)
        _, ended = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0
        async with asyncio.timeout(10):
            assert (await wire.call(request(limits=PATIENT))).status == "ok"


@BY_THREAD
async def test_a_forked_process_leaves_a_call_of_its_parent_alone(
    read_path: ReadPath, ends: tuple[socket.socket, socket.socket]
) -> None:
    watching = SocketReader()
    woken = asyncio.Event()
    file = ends[0].fileno()
    stream = watching.watch(file, woken.set)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stream.expect(0, is_eager=True)
            left = stream.take()
            watching.leave(file)
            with pytest.raises(OSError, match="Bad file descriptor"):
                watching.watch(file, woken.set)
            watching.close()
            code = 2 if left else 0
        finally:
            os._exit(code)
    _, ended = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    ends[1].send(b"no head of a stream")
    async with asyncio.timeout(10):
        await woken.wait()
    assert [data for _, _, data in stream.take()] == [b"no head of a stream"]
    watching.leave(file)
    watching.close()


async def _called_from_a_child(url: str) -> bool:
    async with Wire([Target(arm="a", url=url)]) as wire:
        return (await wire.call(request(1))).status == "ok"


def listed(folder: str) -> set[str]:
    return {each.name for each in Path("/proc/self", folder).iterdir()}


def blocked(thread: str) -> int:
    """Return the set of signals that a thread blocks, as bits."""
    lines = Path("/proc/self/task", thread, "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)


@BY_THREAD
async def test_the_thread_takes_no_signal_and_is_gone_after_the_wire(read_path: ReadPath) -> None:
    threads, files = listed("task"), len(listed("fd"))
    async with Wire([]):
        (thread,) = listed("task") - threads
        for number in (signal.SIGINT, signal.SIGTERM):
            assert blocked(thread) & 1 << number - 1
    assert listed("task") == threads
    assert len(listed("fd")) == files


async def test_without_the_library_the_interpreter_reads(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = watcher()
    assert watching.path == read_path
    watching.close()
    assert who_reads() == (read_path, "" if read_path == "thread" else f"{PURE}=1")
    monkeypatch.setenv(PURE, "0")
    monkeypatch.setattr(reader, "NAME", "agentload_reader_that_is_nowhere")
    reader.load_native.cache_clear()
    assert who_reads() == ("interpreter", "agentload[fast] is not installed")


@BY_THREAD
@pytest.mark.parametrize("name", ["VERSION", "BYTES", "READS", "HEADER", "PER_READ"])
def test_a_library_of_another_version_is_left_alone(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reader, name, getattr(reader, name) + 1)
    assert who_reads() == ("interpreter", reader.OTHER_VERSION)


@BY_THREAD
async def test_where_the_system_starts_no_thread_the_interpreter_reads(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        @staticmethod
        def reader_start() -> None:
            ctypes.set_errno(24)

    monkeypatch.setattr(reader, "load_native", Broken)
    assert isinstance(watcher(), Hub)
    assert who_reads() == ("interpreter", "Too many open files")


@BY_THREAD
def test_the_reason_is_the_first_that_failed(read_path: ReadPath) -> None:
    reader.load_native()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in listed("fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        found = []
        for _ in range(7):
            found.append(who_reads())
            os.close(taken.pop())
        whole = who_reads()
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [("interpreter", "Too many open files")] * 7
    assert whole == ("thread", "")


@BY_THREAD
def test_the_library_is_what_the_makefile_builds_and_names_no_symbol_of_python(
    read_path: ReadPath, library_folder: Path
) -> None:
    listed = subprocess.run(
        ["nm", "--dynamic", library_folder / "agentload_reader.so"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "reader_watch" in listed
    assert " U Py" not in listed


@BY_THREAD
@pytest.mark.slow
@settings(
    max_examples=2_500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(pieces=answers(), ahead_ms=st.sampled_from([0, 2]))
def test_thousands_of_answers_have_the_same_outcomes_on_both_paths(
    monkeypatch: pytest.MonkeyPatch, read_path: ReadPath, pieces: tuple[bytes, ...], ahead_ms: int
) -> None:
    compared(monkeypatch, pieces, (0.0,) * len(pieces), ahead_ms)


@BY_THREAD
async def test_answers_that_are_taken_in_several_parts_are_whole(read_path: ReadPath) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for number in range(300):
            await peer.events(token(f"w{number} ", finish="length" if number == 299 else None))
            await asyncio.sleep(0.005)
        await peer.events(usage(300), "[DONE]")
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = await asyncio.gather(
            *(
                wire.call(
                    WireRequest(
                        request_id=f"r{number}",
                        arm="a",
                        session=f"s{number}",
                        body=(b"{}",),
                        released_ns=wire.clock.now_ns(),
                        asked=CallTerms(tokens=300),
                        limits=PATIENT,
                    )
                )
                for number in range(30)
            )
        )
    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert {len(outcome.chunks or ()) for outcome in outcomes} == {300}
