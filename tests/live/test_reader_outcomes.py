"""An answer has the same outcome whether the interpreter or the thread reads it."""

import asyncio
import socket
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentload.compiled import PURE
from agentload.dispatch.answer import CallTerms
from agentload.live import reader
from agentload.live.hub import ReadPath
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Outcome
from tests.live.by_thread import BY_THREAD, ON_LINUX
from tests.live.calls import MS, PATIENT, request
from tests.live.hostility import DONE, TOKENS, event
from tests.live.scripted import END, STREAM, Peer, good, serving, token, usage

pytestmark = ON_LINUX


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
        called = request(tokens=5)
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
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
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
