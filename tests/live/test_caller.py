from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from agentload.live.caller import PromptCaller, RequestStyle, Sampling, chat
from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.commands import Call, Cancel, Forget, Limits, Prepare, Send, Watch
from agentload.model.trace import Segment
from agentload.prompts.messages import JsonPiece
from agentload.prompts.renderer import Prompt, Renderer
from agentload.prompts.tokenizer import WORD_TOKENS
from tests.live.scripted import STREAM, Peer, serving, token

CALL = Call(
    session="s",
    turn=0,
    workload="chat",
    context=(Segment(role="user", tokens=9, key="u"),),
    context_tokens=9,
    output=3,
)
HI = JsonPiece(b'{"role":"user","content":"hi \xc3\xa9"}', 1)
TOOL = JsonPiece(b'{"type":"function"}', 1)
EMPTY = Prompt(spoken=(), written=())


def send(name: str) -> Send:
    at_ns = time.monotonic_ns()
    return Send(
        request_id=name,
        call=replace(CALL, session=name),
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


async def cooked(caller: PromptCaller, *sessions: str) -> None:
    """Wait until the prompts of these sessions are ready."""
    async with asyncio.timeout(60):
        while not {("a", session) for session in sessions} <= set(caller._last):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.loopback
async def test_nothing_is_kept_of_calls_that_are_cancelled_before_they_go_or_after() -> None:
    async def drips(peer: Peer) -> None:
        await peer.send(STREAM)
        await peer.events(token("a"))
        await peer.hang()

    async with serving(drips) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        caller = PromptCaller(
            wire, {"a": RequestStyle(model="m")}, Renderer(seed=0, tokenizer=WORD_TOKENS), seed=0
        )
        cooking = asyncio.create_task(caller.render_ordered())
        for name in ("cooked", "raw", "sent"):
            call = replace(CALL, session=name)
            caller.prepare(Prepare(request_id=name, call=call, arm="a", salt="salt"))
            if name == "cooked":
                await cooked(caller, "cooked")
                assert caller._last_bytes > 0
        for name in ("cooked", "raw"):
            caller.cancel(Cancel(request_id=name))
        early = [await caller.call(send(name), lambda _: None) for name in ("cooked", "raw")]
        late = await caller.call(
            send("sent"), lambda _: caller.cancel(Cancel(request_id="sent", why="stopped"))
        )
        for name in ("cooked", "raw", "sent"):
            caller.forget(Forget(arm="a", session=name))
        cooking.cancel()
    assert [outcome.status for outcome, _ in (*early, late)] == [
        "cancelled",
        "cancelled",
        "stopped",
    ]
    assert len(server.requests) == 1
    assert (caller._last, caller._last_bytes, caller._orders, caller._cancelled) == ({}, 0, {}, {})


@pytest.mark.loopback
async def test_a_call_asks_for_what_its_turn_does_unless_its_arm_says_otherwise() -> None:
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        speech = RequestStyle(model="m", extra={"tool_choice": "none"})
        caller = PromptCaller(wire, {"a": speech}, Renderer(seed=0, tokenizer=WORD_TOKENS), seed=0)
        asks = (
            ("reasoning_effort", '"low"'),
            ("response_format", '{"type":"json_object"}'),
            ("tool_choice", '"required"'),
        )
        await caller.call(replace(send("x"), call=replace(CALL, asks=asks)), lambda _: None)
    body = json.loads(server.requests[0].body)
    assert {name: body[name] for name, _ in asks} == {
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "tool_choice": "none",
    }


@pytest.mark.loopback
async def test_a_call_that_may_come_is_made_ready_without_a_connection_and_dropped_when_it_never_does() -> (
    None
):
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        caller = PromptCaller(
            wire, {"a": RequestStyle(model="m")}, Renderer(seed=0, tokenizer=WORD_TOKENS), seed=0
        )
        cooking = asyncio.create_task(caller.render_ordered())
        for name in ("comes", "never comes"):
            call = replace(CALL, session=name)
            caller.prepare(
                Prepare(request_id=name, call=call, arm="a", salt="salt", connects=False)
            )
        await cooked(caller, "comes", "never comes")
        assert (sorted(caller._last), server.connections) == (
            [("a", "comes"), ("a", "never comes")],
            0,
        )
        await caller.call(send("comes"), lambda _: None)
        for name in ("comes", "never comes"):
            caller.forget(Forget(arm="a", session=name))
        cooking.cancel()
    assert (caller._last, caller._last_bytes) == ({}, 0)


@pytest.mark.loopback
async def test_a_call_and_the_next_of_its_session_are_each_rendered_once_and_a_retry_drops_none() -> (
    None
):
    rendered: list[int] = []
    both = asyncio.Event()

    class Noting(Renderer):
        def render(
            self, context: tuple[Segment, ...], *, salt: str, after: Prompt | None = None
        ) -> Prompt:
            rendered.append(len(context))
            if len(rendered) == 2:
                both.set()
            return super().render(context, salt=salt, after=after)

    grown = (*CALL.context, Segment(role="assistant", tokens=3, key="a"))
    following = replace(CALL, turn=1, context=(*grown, Segment(role="user", tokens=9, key="v")))
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        renderer = Noting(seed=0, tokenizer=WORD_TOKENS)
        caller = PromptCaller(wire, {"a": RequestStyle(model="m")}, renderer, seed=0)
        for name, call in (("s", CALL), ("next", following)):
            caller.prepare(
                Prepare(request_id=name, call=call, arm="a", salt="salt", connects=False)
            )
        await caller.call(send("s"), lambda _: None)
        cooking = asyncio.create_task(caller.render_ordered())
        await both.wait()
        assert rendered == [1, 3]
        await caller.call(replace(send("s"), request_id="s again"), lambda _: None)
        await caller.call(replace(send("s"), request_id="next", call=following), lambda _: None)
        cooking.cancel()
    assert rendered == [1, 3, 1]


@pytest.mark.loopback
async def test_prompts_beyond_the_limit_are_dropped_and_rendered_again_when_they_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentload.live.caller.KEPT_BYTES", 100)
    async with serving(Peer.answer) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        renderer = Renderer(seed=0, tokenizer=WORD_TOKENS)
        caller = PromptCaller(wire, {"a": RequestStyle(model="m")}, renderer, seed=0)
        cooking = asyncio.create_task(caller.render_ordered())
        for name in ("first", "second"):
            call = replace(CALL, session=name)
            caller.prepare(
                Prepare(request_id=name, call=call, arm="a", salt="salt", connects=False)
            )
        await cooked(caller, "second")
        assert list(caller._last) == [("a", "second")]
        _, digest = await caller.call(send("first"), lambda _: None)
        assert list(caller._last) == [("a", "first")]
        cooking.cancel()
    alone = Renderer(seed=0, tokenizer=WORD_TOKENS).render(CALL.context, salt="salt")
    assert digest == alone.hash
    assert json.loads(server.requests[0].body)["messages"] == json.loads(alone.messages)


def asked(pieces: list[bytes]) -> object:
    return json.loads(b"".join(pieces))


def test_a_chat_asks_for_exactly_so_many_tokens_and_for_their_ids() -> None:
    prompt = replace(EMPTY, spoken=(HI, HI), written=(TOOL, TOOL))
    assert asked(chat(prompt, sampling=Sampling(model="M", max_tokens=64))) == {
        "model": "M",
        "max_tokens": 64,
        "temperature": 0.0,
        "ignore_eos": True,
        "min_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "tools": [{"type": "function"}] * 2,
        "messages": [{"role": "user", "content": "hi é"}] * 2,
    }


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (
            Sampling(
                model="M",
                max_tokens=8,
                is_forced=False,
                counting="running_usage",
                seed=3,
                temperature=0.5,
            ),
            {
                "model": "M",
                "max_tokens": 8,
                "temperature": 0.5,
                "seed": 3,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
        ),
        (
            Sampling(model="M", max_tokens=8, is_forced=False, is_streamed=False, counting="usage"),
            {"model": "M", "max_tokens": 8, "temperature": 0.0},
        ),
        (
            Sampling(
                model="M",
                max_tokens=8,
                is_forced=False,
                is_streamed=False,
                counting="usage",
                extra={"temperature": 1, "user": "u"},
            ),
            {"model": "M", "max_tokens": 8, "temperature": 1, "user": "u"},
        ),
    ],
)
def test_options_say_what_is_asked_and_extra_fields_win(
    sampling: Sampling, expected: dict[str, object]
) -> None:
    assert asked(chat(EMPTY, sampling=sampling)) == expected | {"messages": []}


def test_the_prompt_is_passed_on_and_not_copied() -> None:
    body = chat(replace(EMPTY, spoken=(HI,)), sampling=Sampling(model="M", max_tokens=1))
    assert any(piece is HI.json for piece in body)
