"""What is asked of servers outside of timed calls: nothing secret
leaves them, and no answer of theirs is more than an answer.
"""

from __future__ import annotations

import asyncio
import json
import resource
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from agentload import telemetry
from agentload.ask import asker, plain
from agentload.ask.asker import Asker
from agentload.ask.asker import Failed as NotAnswered
from agentload.ask.plain import Plain
from agentload.cli import main
from agentload.endpoints import counting, launch
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import is_same_configuration
from agentload.endpoints.identity import identify, served_model
from agentload.endpoints.launch import is_healthy
from agentload.endpoints.reach import reach
from agentload.errors import AgentloadError, EndpointError, TraceError
from agentload.telemetry.reach import scrape
from agentload.telemetry.watch import TelemetrySource, TelemetryWatch
from tests.live.hostile import NESTED
from tests.live.scripted import Peer, serving
from tests.run.playing import answering

pytestmark = pytest.mark.loopback
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "plainkeyword")
    monkeypatch.setenv("TEAM_KEY", "tobeornottobe")


def endpoint(url: str) -> Endpoint:
    return Endpoint(name="a", url=url, key_env="KEY", header_env={"X-Team": "TEAM_KEY"})


async def asks_who_it_is(there: Endpoint) -> None:
    with suppress(AgentloadError):
        await identify(there)


async def counts(there: Endpoint) -> None:
    with suppress(AgentloadError):
        assert await tokenizer(there, "m") is None


async def asks(there: Endpoint) -> None:
    async with Asker(there, "m") as asking:
        assert isinstance(
            await asking.ask(HELLO, tools=(), output_tokens=4, seed=0, request_id="r1"), NotAnswered
        )


async def asks_for_a_stream(there: Endpoint) -> None:
    async with Plain(there, "m") as speaking:
        assert isinstance(await speaking.stream(HELLO, output_tokens=4), NotAnswered)


async def sees_its_health(there: Endpoint) -> None:
    await asyncio.to_thread(is_healthy, there)


async def reads_its_metrics(there: Endpoint) -> None:
    with suppress(EndpointError, TraceError):
        await asyncio.to_thread(scrape, f"{there.root}/metrics")


async def watches(there: Endpoint) -> None:
    watch = TelemetryWatch(
        {"a": TelemetrySource(urls=tuple(there.metrics_urls), reach=reach(there))}, every_s=0.01
    )
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.3)
    assert not task.done()
    task.cancel()
    assert list(watch.rows(run_id="r", leg=1)) == []


WAYS = [
    asks_who_it_is,
    counts,
    sees_its_health,
    reads_its_metrics,
    asks,
    asks_for_a_stream,
    watches,
]


@pytest.mark.parametrize("status", [b"302", b"307", b"308"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_redirect_to_another_server_is_not_followed(
    way: Callable[[Endpoint], Awaitable[None]], status: bytes
) -> None:
    async def taken(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with serving(taken) as thief:

        async def elsewhere(peer: Peer) -> None:
            there = thief.url.encode() + b"/taken"
            await peer.send(
                b"HTTP/1.1 %b Elsewhere\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n"
                % (status, there)
            )

        async with serving(elsewhere) as server:
            await way(endpoint(server.url))
            assert server.requests
    assert thief.requests == []


async def nested(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(NESTED), NESTED)
    )


def endless(head: bytes, piece: bytes) -> tuple[Callable[[Peer], Awaitable[None]], list[int]]:
    """Return a server of 256 MB, and how much of each answer it could send."""
    sent: list[int] = []

    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        mine = len(sent)
        sent.append(0)
        for _ in range(4_000):
            await peer.send(piece)
            sent[mine] += len(piece)

    return answer, sent


async def dripping(peer: Peer) -> None:
    """Answer a byte at a time, each within any patience with silence."""
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while not peer.writer.is_closing():
        await peer.send(b" ")
        await asyncio.sleep(0.05)


async def digits(peer: Peer) -> None:
    body = b'{"data":[{"id":"m"}],"count":' + b"9" * 5_000 + b"}"
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


async def null(peer: Peer) -> None:
    body = b'{"choices":[null],"usage":7,"data":[{"id":["m"]}]}'
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


async def no_message(peer: Peer) -> None:
    body = b'{"choices":[{"message":null,"logprobs":{"content":[5]}}],"usage":"many"}'
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


async def bad_events(peer: Peer) -> None:
    body = (
        b'data: {"choices":[{"delta":null}],"usage":3}\n\ndata: ' + NESTED + b"\n\ndata: [DONE]\n\n"
    )
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


@pytest.mark.parametrize("answer", [nested, digits, null, no_message, bad_events])
@pytest.mark.parametrize("way", WAYS)
async def test_what_no_parser_can_read_is_no_answer_and_ends_nothing(
    way: Callable[[Endpoint], Awaitable[None]], answer: Callable[[Peer], Awaitable[None]]
) -> None:
    async with serving(answer) as server:
        await way(endpoint(server.url))
        server.failures.clear()


JSON = b"content-type: application/json\r\n"
BOMB = zlib.compressobj(9, wbits=31)
"""A gigabyte of spaces for each megabyte."""
ZEROS = BOMB.compress(b" " * (64 << 20)) + BOMB.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (JSON, b"[" * 65_536),
        (JSON, b"data: {}\n\n" * 6_000),
        (b"content-encoding: gzip\r\n" + JSON, ZEROS),
    ],
)
@pytest.mark.parametrize("way", WAYS)
async def test_a_page_without_end_is_not_kept(
    way: Callable[[Endpoint], Awaitable[None]], head: bytes, piece: bytes
) -> None:
    answer, sent = endless(head, piece)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving(answer) as server:
        await way(endpoint(server.url))
        server.failures.clear()
    assert max(sent) < 48 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 256 << 10


@pytest.mark.parametrize(
    "way", [counts, sees_its_health, reads_its_metrics, asks, asks_for_a_stream]
)
async def test_a_page_that_drips_is_given_up(
    way: Callable[[Endpoint], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (asker, plain, counting, telemetry.reach):
        monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(launch, "HEALTH_S", 0.5)
    async with serving(dripping) as server, asyncio.timeout(60):
        await way(endpoint(server.url))


async def test_a_listing_that_is_nested_without_end_is_an_error_that_names_the_arm() -> None:
    async with serving(nested) as server:
        with pytest.raises(EndpointError, match=r"a: .*does not answer JSON"):
            await identify(endpoint(server.url))


@pytest.mark.parametrize("finish", ["error", "abort", "content_filter", "banana"])
async def test_an_answer_that_did_not_end_well_is_no_answer_to_be_graded(finish: str) -> None:
    async def cut(peer: Peer) -> None:
        body = (
            b'{"choices":[{"message":{"role":"assistant","content":"half"},"finish_reason":"%b"}]}'
            % finish.encode()
        )
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    async with serving(cut) as server, Asker(endpoint(server.url), "m") as asking:
        found = await asking.ask(HELLO, tools=(), output_tokens=4, seed=0, request_id="r1")
    assert found == NotAnswered(
        error=f"the answer ended with the finish reason '{finish}'", http_status=200
    )


STATUSES = [
    b"401 No",
    b"403 No",
    b"500 No",
    b"404 No",
    b"200 OK",
    b"302 Away\r\nlocation: http://me:pwofours@127.0.0.1:9/?api_key=queryofours",
]


@pytest.mark.parametrize("status", STATUSES)
async def test_what_is_said_of_an_address_holds_neither_its_password_nor_its_query(
    status: bytes,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)

    async with serving(answer) as server:
        url = server.url.replace("127.0.0.1", "me:pwofours@127.0.0.1")
        metrics = url.replace("/v1", "/metrics?api_key=queryofours")
        for each in (
            Endpoint(name="a", url=url),
            Endpoint(name="a", url=url, model="m", metrics=(metrics,)),
        ):
            try:
                said = str(await identify(each))
            except EndpointError as error:
                said = f"{error.message} {error.hint}"
            assert "pwofours" not in said
            assert "queryofours" not in said
    with pytest.raises(EndpointError) as refused:
        await identify(Endpoint(name="a", url=url))
    assert "pwofours" not in f"{refused.value.message} {refused.value.hint}"


async def test_a_name_that_drives_a_terminal_is_shown_and_does_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listing = json.dumps({"data": [{"id": "\x1b]0;owned\x07a"}, {"id": "b\u202e\r"}]})

    async def lists(peer: Peer) -> None:
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(listing), listing.encode())
        )

    async with serving(lists) as server:
        there = Endpoint(name="a", url=server.url)
        found = await identify(there)
        with pytest.raises(EndpointError) as refused:
            served_model(there, found)
    main._explain(refused.value)
    said = capsys.readouterr().err
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "figure", ["9" * 400, "9" * 5_000, "inf", "nan", "many", "-1", "1e308", "\u0663"]
)
async def test_a_figure_of_a_configuration_may_be_anything(figure: str) -> None:
    labels = f'cache_dtype="auto",kv_cache_size_tokens="{figure}",block_size="{figure}",kv_cache_max_concurrency="{figure}"'
    page = "".join(f'vllm:cache_config_info{{engine="{engine}",{labels}}} 1\n' for engine in "01")
    page += 'vllm:cache_config_info{engine="2",kv_cache_size_tokens="1.5"} 1\n'
    pages = {"/metrics": page}
    async with serving(answering(pages=lambda path, _: pages.get(path))) as server:
        found = await identify(Endpoint(name="a", url=server.url))
    assert is_same_configuration(found.facts(), found.facts()) in {True, False}
    assert found.cache_block in {None, 3}
