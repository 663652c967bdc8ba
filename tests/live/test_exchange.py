"""How much of an answer is parsed in one go, and how much answers in flight may hold."""

import asyncio
import json
import re

import pytest

import agentload
from agentload.dispatch.answer import CallTerms
from agentload.live import exchange
from agentload.live.exchange import BEHIND_BYTES, Exchange, Memory, own_bytes
from agentload.live.hub import Hub
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits
from tests.live.calls import hasty, request
from tests.live.hostility import DONE, body, event
from tests.live.scripted import END, STREAM, Peer, good, serving, token

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]

LARGEST_READ = 64 << 10  # of a thread; the interpreter's is smaller


@pytest.mark.skipif(
    agentload.COMPILED.endswith("modules"),
    reason="compiled modules call what this replaces directly",
)
async def test_no_more_of_an_answer_is_parsed_in_one_go_than_two_reads_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes: list[int] = []
    step = Exchange.step

    def noted(self: Exchange, limit: int) -> int:
        waiting = list(self._reads)[:limit]
        goes.append(sum(len(data) for _, data in waiting))
        return step(self, limit)

    monkeypatch.setattr(exchange.Exchange, "step", noted)

    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await body(peer, event(json.loads('{"choices":[{}]}')) * 200_000 + DONE)
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        await wire.call(request(limits=Limits(), tokens=1_000_000))
    assert sum(goes) > 4 << 20
    assert max(goes) <= BEHIND_BYTES + LARGEST_READ


def test_an_answer_has_a_share_of_its_own_by_the_tokens_that_were_asked() -> None:
    assert own_bytes(None) == 256 << 10
    assert own_bytes(1_000) == (256 << 10) + 512_000


async def test_what_is_shared_is_whole_again_when_all_calls_are_over() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await body(peer, event(token("x" * 400_000)) + b"data: " + b"x" * 2_000_000)
        if peer.number % 2:
            peer.reset()
        else:
            await peer.hang()

    limits = hasty("idle")
    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        outcomes = [await wire.call(request(number, limits=limits)) for number in range(3)]
        assert wire._reception.memory.left_bytes == Memory().left_bytes
    assert {outcome.status for outcome in outcomes} <= {"reset", "idle_timeout"}


async def test_a_call_within_its_own_share_is_ok_also_while_others_have_taken_all_that_is_shared() -> (
    None
):
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(*good(3))
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        wire._reception.memory.left_bytes = -1
        outcome = await wire.call(request())
    assert outcome.status == "ok"


async def test_a_call_that_needs_more_than_is_left_is_unreadable() -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(STREAM)
        await body(peer, event(token("x" * 400_000)))
        await peer.hang()

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        wire._reception.memory.left_bytes = 100_000
        outcome = await wire.call(
            WireRequest(
                request_id="r",
                arm="a",
                session="s",
                body=(b"{}",),
                released_ns=wire.clock.now_ns(),
                asked=CallTerms(tokens=3),
            )
        )
    assert outcome.status == "unreadable"
    # How much depends on where its reads end.
    assert outcome.error is not None
    assert re.fullmatch(
        r"the answer takes [\d,]+ kB, more than answers in flight may hold together", outcome.error
    )


@pytest.mark.skipif(
    agentload.COMPILED.endswith("modules"),
    reason="compiled modules call what this replaces directly",
)
@pytest.mark.parametrize("read_path", ["interpreter"], indirect=True)
@pytest.mark.parametrize("tokens_each", [1, 4])
async def test_the_end_of_an_answer_is_expected_by_the_tokens_that_were_asked_and_those_that_a_read_brings(
    monkeypatch: pytest.MonkeyPatch, tokens_each: int
) -> None:
    chunks = 40
    hastened: list[int] = []
    sent = 0
    monkeypatch.setattr(Hub, "hasten", lambda self, file: hastened.append(sent))

    async def answer(peer: Peer) -> None:
        nonlocal sent
        await peer.send(STREAM)
        for number in range(chunks):
            ids = list(range(tokens_each))
            finish = "length" if number == chunks - 1 else None
            choice = {
                "index": 0,
                "delta": {"content": " word" * tokens_each},
                "token_ids": ids,
                "finish_reason": finish,
            }
            await peer.events({"choices": [choice]})
            sent += 1
            await asyncio.sleep(0.02)
        await peer.send(END)

    async with serving(answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        asked = CallTerms(tokens=chunks * tokens_each, ends_with_mark=False)
        limits = Limits()
        await wire.call(
            WireRequest(
                request_id="r",
                arm="a",
                session="s",
                body=(b"{}",),
                released_ns=wire.clock.now_ns(),
                asked=asked,
                limits=limits,
            )
        )
    assert chunks - 12 <= hastened[0] <= chunks
