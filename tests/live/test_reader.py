"""What the thread that reads sockets reads, and when it calls back."""

import asyncio
import errno
import fcntl
import socket
import sys
import termios
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from agentload.dispatch.answer import CallTerms
from agentload.dispatch.call import CallMachine
from agentload.live.channel import Channel
from agentload.live.exchange import Exchange, Reception
from agentload.live.hub import ReadPath
from agentload.live.pump import Pump
from agentload.live.reader import BYTES, SocketReader
from agentload.live.stamps import StampClock
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.live.wire import Wire
from tests.live.by_thread import BY_THREAD, ON_LINUX, Watched, answer_well
from tests.live.calls import MS, PATIENT, request
from tests.live.certificates import Certificates
from tests.live.hostility import event
from tests.live.late import Hold
from tests.live.scripted import END, STREAM, await_all_read, good, serving, token

pytestmark = ON_LINUX


def unread(ours: socket.socket) -> int:
    """Return how many bytes the kernel has that nobody read."""
    return int.from_bytes(fcntl.ioctl(ours, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def await_read(ours: socket.socket) -> None:
    """Wait until the thread has read all that came, and do not turn the loop."""
    until_s = time.monotonic() + 60
    while unread(ours) and time.monotonic() < until_s:
        time.sleep(0.001)


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
            hold = Hold(loop)
            for payload in good(tokens):
                sent = event(payload if isinstance(payload, dict) else b"[DONE]")
                peer.sendall(b"%x\r\n%b\r\n" % (len(sent), sent))
                # Only the thread reads meanwhile, however late this machine lets it.
                if read_path == "thread":
                    await_all_read(listening.getsockname()[1])
            hold.over()
            peer.sendall(END)

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = loop.run_in_executor(None, serve, listening)
        url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/v1"
        trusted = context(authority=certificates.authority) if scheme == "https" else None
        async with Wire([Target(arm="a", url=url, tls=trusted)]) as wire:
            await wire.ready("a", "s")
            outcome = await wire.call(request(tokens=tokens))
        await served
    assert (outcome.status, outcome.stamp_source) == ("ok", "kernel")
    assert outcome.coalesced_reads is not None
    if read_path == "interpreter":
        assert outcome.coalesced_reads > 5
    else:
        assert outcome.coalesced_reads == 0


@BY_THREAD
async def test_a_server_that_floods_is_not_read_until_what_it_sent_was_taken(
    watched: Watched,
) -> None:
    stream = watched.stream
    sent = looks = 0
    async with asyncio.timeout(60):
        while looks < 50 or not watched.woken.is_set() or sent - unread(watched.ours) < 32 << 10:
            await asyncio.sleep(0.002)
            looks += 1
            with suppress(BlockingIOError):
                while True:
                    sent += watched.theirs.send(b"x" * 8192)
    before = sent
    received = sum(len(data) for _, _, data in stream.take())
    assert 32 << 10 <= received <= BYTES
    assert stream.is_urgent
    while received < before:
        await asyncio.sleep(0.002)
        reads = stream.take()
        received += sum(len(data) for _, _, data in reads)
    assert received == before


@BY_THREAD
async def test_a_slow_stream_is_told_of_some_reads_at_a_time_and_long_before_many(
    watched: Watched,
) -> None:
    watched.stream.expect(1000, is_eager=False)
    watched.theirs.send(STREAM)
    tellings: list[list[bytes]] = []
    async with asyncio.timeout(60):
        while not tellings or len(tellings[-1]) <= 3:  # where this process stood still
            while not watched.woken.is_set():  # ten reads a second, or fewer
                await asyncio.sleep(0.1)
                watched.theirs.send(b"1\r\nx\r\n")
            watched.woken.clear()
            tellings.append([data for _, _, data in watched.stream.take()])
    assert tellings[0][0] == STREAM
    assert max(map(len, tellings)) <= 30


@BY_THREAD
@pytest.mark.parametrize("cut", [0, 14])
@pytest.mark.parametrize("line", [b"\n", b"\r\n"])
async def test_an_end_mark_is_told_at_once_though_no_last_chunk_follows(
    watched: Watched, cut: int, line: bytes
) -> None:
    watched.stream.expect(1000, is_eager=False)
    head, mark = STREAM + b"10\r\n", b"data: [DONE]" + 2 * line + b"\r\n"
    watched.theirs.send(head + mark[:cut])
    await asyncio.sleep(0.01)
    watched.theirs.send(mark[cut:])
    async with asyncio.timeout(60):
        await watched.woken.wait()
    assert b"".join(data for _, _, data in watched.stream.take()) == head + mark
    assert watched.stream.is_urgent


@BY_THREAD
async def test_reads_come_in_order_with_an_end_and_a_failure_comes_last(
    socket_reader: SocketReader,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for ends_well in (True, False):
            with socket.create_connection(server.getsockname()) as ours:
                ours.setblocking(False)
                theirs, _ = server.accept()
                woken = asyncio.Event()
                stream = socket_reader.watch(ours.fileno(), woken.set)
                stream.expect(1000, is_eager=True)
                found: list[bytes] = []
                with theirs:
                    for number in range(3):
                        theirs.sendall(b"%d" % number)
                        await asyncio.wait_for(woken.wait(), 60)
                        woken.clear()
                        found += [data for _, _, data in stream.take()]
                    if not ends_well:
                        ours.send(b"unread, so that the close is a reset")
                        await asyncio.sleep(0.05)
                await asyncio.wait_for(woken.wait(), 60)
                if ends_well:
                    found += [data for _, _, data in stream.take()]
                    assert found == [b"0", b"1", b"2", b""]
                else:
                    with pytest.raises(ConnectionResetError):
                        stream.take()
                socket_reader.leave(ours.fileno())


@BY_THREAD
async def test_what_was_read_and_not_taken_is_there_after_leaving(watched: Watched) -> None:
    reader, ours, stream = watched.reader, watched.ours, watched.stream
    watched.theirs.send(b"late")
    await_read(ours)
    await asyncio.sleep(0.05)
    reader.leave(ours.fileno())
    watched.theirs.send(b"later")
    await asyncio.sleep(0.05)
    assert [data for _, _, data in stream.take()] == [b"late"]
    assert stream.take() == []
    assert ours.recv(9) == b"later"
    reader.leave(ours.fileno())  # a second time changes nothing
    reader.close()
    reader.close()
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
    both_ends: tuple[socket.socket, socket.socket], behind: bytes
) -> None:
    clock, pump = StampClock(), Pump()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
    machine = CallMachine(released_ns=clock.now_ns(), limits=PATIENT, asked=CallTerms(tokens=3))
    machine.opened(clock.now_ns())
    exchange = Exchange(
        Channel(both_ends[0], clock=clock, peer="p"),
        machine,
        Reception(clock=clock, hub=Behind(answer, behind), pump=pump),
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
    watched: Watched, data: bytes, is_urgent: object
) -> None:
    watched.theirs.send(data)
    async with asyncio.timeout(60):
        while not (reads := watched.stream.take()):  # noqa: ASYNC110  # nobody announces a silent read
            await asyncio.sleep(0.001)
    assert [each for _, _, each in reads] == [data]
    assert watched.stream.is_urgent == is_urgent


@BY_THREAD
async def test_one_mistake_of_a_callback_makes_nobody_deaf(socket_reader: SocketReader) -> None:
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
        socket_reader.watch(ours.fileno(), lambda number=number: callback(number))  # type: ignore[misc]
        theirs.send(b"no head of a stream")
    async with asyncio.timeout(60):
        while sorted(heard) != [1, 2]:  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(0.01)
    assert [type(mistake) for mistake in mistakes] == [ZeroDivisionError]
    socket_reader.close()
    for pair in pairs:
        for each in pair:
            each.close()


@BY_THREAD
async def test_streams_that_are_never_silent_leave_the_loop_its_turns(
    socket_reader: SocketReader,
) -> None:
    called = 0
    pairs = [socket.socketpair() for _ in range(40)]

    def callback(number: int) -> None:
        nonlocal called
        called += 1
        streams[number].take()
        time.sleep(0.001)

    streams = [
        # a default is no parameter
        socket_reader.watch(ours.fileno(), lambda number=number: callback(number))  # type: ignore[misc]
        for number, (ours, _) in enumerate(pairs)
    ]
    for stream in streams:
        stream.expect(1000, is_eager=True)
    in_a_turn: list[int] = []
    async with asyncio.timeout(60):
        while sum(in_a_turn) < 400:
            for _, theirs in pairs:
                theirs.send(b"x")
            before = called
            await asyncio.sleep(0)
            in_a_turn.append(called - before)
    socket_reader.close()
    for pair in pairs:
        for each in pair:
            each.close()
    assert max(in_a_turn) < len(pairs)  # some callbacks, where all that wait would take 40 ms


@BY_THREAD
async def test_an_answer_that_ended_goes_before_reads_that_can_wait(
    socket_reader: SocketReader,
) -> None:
    pairs = [socket.socketpair() for _ in range(10)]
    heard: list[int] = []
    for number, (ours, theirs) in enumerate(pairs):
        stream = socket_reader.watch(ours.fileno(), partial(heard.append, number))
        stream.expect(17, is_eager=False)  # be told of the first read, as an end is near
        theirs.send(STREAM)
        await_read(ours)
    for number in (7, 3):
        pairs[number][1].send(END)
        await_read(pairs[number][0])
    time.sleep(0.05)  # noqa: ASYNC251  # as if Python were busy
    async with asyncio.timeout(60):
        while len(heard) < len(pairs):  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(0.001)
    assert sorted(heard[:2]) == [3, 7]
    assert heard[2:] == [number for number in range(10) if number not in {3, 7}]
    socket_reader.close()
    for pair in pairs:
        for each in pair:
            each.close()


@pytest.mark.usefixtures("read_path")
async def test_a_call_whose_socket_cannot_be_watched_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(answer_well) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        monkeypatch.setattr(wire._hub, "watch", full)
        if wire._hub.path == "thread":
            monkeypatch.setattr(wire._hub, "send", full)
        soon = replace(request(), released_ns=wire.clock.now_ns() + 50 * MS)
        async with asyncio.timeout(60):
            outcome = await wire.call(soon)
        assert outcome.status == "reset"
        assert (outcome.done_ns or 0) >= soon.released_ns
        assert "No space left on device" in (outcome.error or "")
        monkeypatch.undo()
        async with asyncio.timeout(60):
            assert (await wire.call(request())).status == "ok"


@BY_THREAD
async def test_a_file_that_cannot_be_read_is_an_error(socket_reader: SocketReader) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        socket_reader.watch(1 << 20, lambda: None)
