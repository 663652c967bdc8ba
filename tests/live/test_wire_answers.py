"""How answers come and end: streamed or whole, in
crumbs, with pings, with or without an end mark.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.commands import Limits
from tests.live.calls import PATIENT, hasty, one_call, request
from tests.live.hostility import DONE, TOKENS
from tests.live.scripted import END, STREAM, Peer, good, serving

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]
WIRE = Path(__file__).parent.parent / "fixtures" / "wire"


async def test_an_answer_that_never_ends_is_over_soon_after_its_end_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*good(3))
        await peer.hang()

    loop = asyncio.get_running_loop()
    call_at, timers_s = loop.call_at, list[float]()

    def noted(when: float, *rest: Any, **context: Any) -> asyncio.TimerHandle:
        timers_s.append(when)
        return call_at(when, *rest, **context)

    monkeypatch.setattr(loop, "call_at", noted)
    async with serving(answer) as server, asyncio.timeout(60):
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.done_ns) == ("ok", outcome.last_ns)
    assert outcome.last_ns is not None
    assert pytest.approx(outcome.last_ns / 1e9 + 1, abs=0.001) in timers_s


async def test_an_answer_of_an_old_server_ends_with_its_connection() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for payload in (WIRE / "transformers_chat.sse").read_bytes().split(b"\n\n"):
            await peer.send(payload + b"\n\n")
        peer.writer.close()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request(tokens=6))
    assert (outcome.status, outcome.token_rule, outcome.prompt_tokens) == ("ok", "usage", 13)


@pytest.mark.parametrize(
    "events",
    [(WIRE / "llama_cpp_cut.sse").read_bytes(), b""],
    ids=["cut by another request", "nothing, to a prompt that is too long"],
)
async def test_an_answer_that_llama_cpp_cuts_or_never_gives_is_truncated_though_it_ends_well(
    events: bytes,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM + (b"%x\r\n%b\r\n" % (len(events), events) if events else b"") + END)

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.http_status, outcome.error) == (
        "truncated",
        200,
        "the answer has no finish_reason",
    )


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
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcome = await wire.call(request(is_streamed=False, tokens=4))
    assert (outcome.status, outcome.output_tokens, outcome.chunks, outcome.first_ns) == (
        "ok",
        4,
        None,
        None,
    )


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_bytes_that_come_in_crumbs_say_the_same(size: int) -> None:
    async def answer(peer: Peer) -> None:
        events = b"".join(
            b"data: %b\n\n" % payload
            for payload in (b'{"choices":[{"delta":{"content":"\xc3\xa9"}}]}',) * 2
        )
        finish = (
            b"data: "
            b'{"choices":[{"delta":{"content":"!"},"finish_reason":"length"}],"usage":{"completion_tokens":3}}\n\ndata: '
            b"[DONE]\n\n"
        )
        stream = STREAM + b"%x\r\n%b\r\n" % (len(events + finish), events + finish) + END
        for start in range(0, len(stream), size):
            await peer.send(stream[start : start + size])
            await asyncio.sleep(0)

    async with serving(answer) as server:
        outcome = await one_call(server.url)
    assert (outcome.status, outcome.output_tokens, outcome.reply and outcome.reply.text) == (
        "ok",
        3,
        "éé!",
    )


async def test_a_head_that_comes_long_before_the_first_token_does_not_start_the_idle_limit() -> (
    None
):
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await asyncio.sleep(0.25)  # longer than the idle limit
        events = TOKENS + DONE  # in one piece: the idle limit has no time
        await peer.send(b"%x\r\n%b\r\n" % (len(events), events) + END)

    async with serving(answer) as server:
        outcome = await one_call(server.url, limits=hasty("idle"))
    assert outcome.status == "ok"


@pytest.mark.parametrize(
    "limits",
    [
        PATIENT,
        # a machine that stands still for longer than the limit ends the call
        pytest.param(hasty("idle"), marks=[pytest.mark.slow, pytest.mark.alone]),
    ],
    ids=["patient", "hasty"],
)
async def test_pings_keep_a_stream_alive_and_are_no_tokens(limits: Limits) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        for _ in range(3):
            await peer.send(b"8\r\n: ping\n\n\r\n")
            await asyncio.sleep(0.1)
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server:
        outcome = await one_call(server.url, limits=limits)
    assert (outcome.status, outcome.output_tokens, len(outcome.chunks or ())) == ("ok", 3, 3)


LONG = "Meta-Llama-3.1-405B-Instruct-quantized"


async def test_an_answer_that_names_another_model_says_so_without_giving_a_key_away() -> None:
    models = iter([f"{LONG}.w8a8", f"{LONG}.w8a8", f"{LONG}.w4a16", None, "the \x1b key sk-mine"])

    async def answer(peer: Peer) -> None:
        model = next(models)
        await peer.send(STREAM)
        events = [each | {"model": model} for each in good(3) if isinstance(each, dict)]
        await peer.events(*events, "[DONE]")
        await peer.send(END)

    async with (
        serving(answer) as server,
        Wire([Target(arm="a", url=server.url, api_key="sk-mine")]) as wire,
    ):
        outcomes = [await wire.call(request(number)) for number in range(5)]
    assert [outcome.status for outcome in outcomes] == ["ok"] * 5
    assert [each.gateway for each in outcomes] == [
        None,
        None,
        f"fallback (model {LONG}.w4a16 in place of {LONG}.w8a8)",
        None,
        f"fallback (model the   key *** in place of {LONG}.w8a8)",
    ]
