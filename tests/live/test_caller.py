from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from agentload.live.caller import PromptCaller, Speech
from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.commands import Call, Cancel, Forget, Limits, Prepare, Send, Watch
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS
from tests.live.scripted import STREAM, Peer, serving, token

CALL = Call(session="s", turn=0, workload="chat", context=(Segment(role="user", tokens=9, key="u"),), context_tokens=9, output=3)


def send(name: str) -> Send:
    at_ns = time.monotonic_ns()
    return Send(
        request_id=name,
        call=CALL,
        attempt=0,
        retry_of=None,
        arm="a",
        block=0,
        pair=0,
        due_ns=at_ns,
        released_ns=at_ns,
        salt="salt",
        limits=Limits(),
        watch=Watch(cancel_after_tokens=1),
    )


@pytest.mark.loopback
async def test_nothing_is_kept_of_calls_that_are_cancelled_before_they_go_or_after() -> None:
    async def drips(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(token("a"))
        await peer.hang()

    async with serving(drips) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        caller = PromptCaller(wire, {"a": Speech(model="m")}, Renderer(seed=0, tokenizer=WORD_TOKENS), seed=0)
        cooking = asyncio.create_task(caller.cook())
        for name in ("cooked", "raw", "sent"):
            caller.prepare(Prepare(request_id=name, call=CALL, arm="a", salt="salt"))
            if name == "cooked":
                await asyncio.sleep(0.01)
                assert caller._ready_bytes > 0
        for name in ("cooked", "raw"):
            caller.cancel(Cancel(request_id=name))
        early = [await caller.call(send(name), lambda _: None) for name in ("cooked", "raw")]
        late = await caller.call(send("sent"), lambda _: caller.cancel(Cancel(request_id="sent", why="stopped")))
        cooking.cancel()
    assert [outcome.status for outcome, _ in (*early, late)] == ["cancelled", "cancelled", "stopped"]
    assert len(server.requests) == 1
    assert (caller._ready, caller._ready_bytes, caller._orders, caller._cancelled) == ({}, 0, {}, {})


@pytest.mark.loopback
async def test_a_call_that_may_come_is_made_ready_without_a_connection_and_dropped_when_it_never_does() -> None:
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        caller = PromptCaller(wire, {"a": Speech(model="m")}, Renderer(seed=0, tokenizer=WORD_TOKENS), seed=0)
        cooking = asyncio.create_task(caller.cook())
        for name, session in (("comes", "s"), ("never comes", "t")):
            call = replace(CALL, session=session)
            caller.prepare(Prepare(request_id=name, call=call, arm="a", salt="salt", connects=False))
        await asyncio.sleep(0.02)
        assert (sorted(caller._ready), server.connections) == (["comes", "never comes"], 0)
        await caller.call(send("comes"), lambda _: None)
        for session in ("s", "t"):
            caller.forget(Forget(arm="a", session=session))
        cooking.cancel()
    assert (caller._ready, caller._ready_bytes, caller._foretold) == ({}, 0, {})
