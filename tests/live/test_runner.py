from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest

from agentload.dispatch.dispatcher import PlayEnd
from agentload.dispatch.row import row
from agentload.live import runner
from agentload.live.caller import RequestStyle
from agentload.live.health import Health, Monitor
from agentload.live.runner import RunLeg, Runner
from agentload.live.station import Called, Job
from agentload.live.target import Target
from agentload.live.workers.pool import calling
from agentload.model.commands import Cancel, Forget, Outcome, Prepare, Send, Settle
from agentload.model.trace import Session, Turn
from agentload.prompts.tokenizer import WORD_TOKENS
from tests.dispatch.playing import one_block, said
from tests.live.rows import Rows
from tests.live.scripted import END, STREAM, Peer, good, serving

SECOND = 1_000_000_000


def talk(name: str, *, turns: int, start_s: float = 0.0) -> Session:
    made = tuple(
        Turn(add=(said("user", 4, f"{name}.{number}"),), output=3) for number in range(turns)
    )
    return Session(session=name, workload="chat", start_s=start_s, turns=made)


async def barrier(
    settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
) -> tuple[tuple[int, str], ...]:
    return ()


@pytest.mark.loopback
async def test_a_session_keeps_its_cookie_and_connection_for_one_play_and_not_for_the_next() -> (
    None
):
    async def answer(peer: Peer) -> None:
        await peer.send(
            STREAM.replace(b"\r\n\r\n", b"\r\nset-cookie: route=r%d\r\n\r\n" % peer.number)
        )
        await peer.events(*good(3))
        await peer.send(END)

    rows = Rows()
    plan = one_block((talk("s", turns=2),), pairs=2)
    async with serving(answer) as server:
        job = Job(
            run_id="run",
            leg=1,
            seed=0,
            targets=partial(tuple, [Target(arm="a", url=server.url)]),
            styles={"a": RequestStyle(model="m")},
            trace_seed=0,
            block=64,
            tokenizer=WORD_TOKENS,
        )
        async with calling(job, rows.append) as caller:
            health = await Runner(plan, caller, barrier, leg=RunLeg(number=1), journal=rows).play()
    cookies = [asked.headers.get("cookie") for asked in server.requests]
    assert cookies == [None, "route=r1", None, "route=r3"]
    first, second, third, fourth = (asked.connection for asked in server.requests)
    assert first == second != third == fourth
    assert (health.calls, health.dropped_stamps, health.workers, len(rows)) == (4, 0, (), 4)


class Ahead:
    """Ends every call at once, and notes how long before its instant it came."""

    lead_ns = 60 * SECOND

    def __init__(self) -> None:
        self.ahead_s: list[float] = []

    def prepare(self, command: Prepare) -> None: ...

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        self.ahead_s.append((send.released_ns - time.monotonic_ns()) / SECOND)
        outcome = Outcome(status="ok", sent_ns=send.released_ns, done_ns=send.released_ns)
        return Called(outcome=outcome, row=row(send, outcome, run_id="run", leg=1), chunks=0)

    def cancel(self, command: Cancel) -> None: ...

    def forget(self, command: Forget) -> None: ...

    async def sync(self) -> None: ...

    def facts(self) -> None: ...

    def workers(self) -> tuple[Health, ...]:
        return ()


async def test_a_caller_that_needs_time_is_handed_each_call_before_its_instant() -> None:
    caller = Ahead()
    plan = one_block((talk("s", turns=1, start_s=40.0), talk("t", turns=1, start_s=50.0)))
    health = await Runner(plan, caller, barrier, leg=RunLeg(number=1), journal=Rows()).play()
    assert [round(each, -1) for each in caller.ahead_s] == [40, 50]
    assert health.send_lag_p99_ms == 0


class Follows(Ahead):
    """Notes in whose task each call is carried out."""

    lead_ns = 0

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[tuple[str, asyncio.Task[object] | None]] = []

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        self.tasks.append((send.call.session, asyncio.current_task()))
        await asyncio.sleep(0)
        return await super().call(send, streamed)


async def test_a_session_s_next_call_leaves_in_the_turn_in_which_the_one_before_ended() -> None:
    caller = Follows()
    plan = one_block((talk("s", turns=3), talk("t", turns=3)))
    await Runner(plan, caller, barrier, leg=RunLeg(number=1), journal=Rows()).play()
    assert len(caller.tasks) == 6
    assert len(set(caller.tasks)) == 2


async def test_a_machine_that_sleeps_between_two_blocks_interrupts_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asleep, faults = [0], []

    async def sleeps(
        settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
    ) -> tuple[tuple[int, str], ...]:
        asleep[0] += 3_600 * SECOND
        faults.append(fault)
        return ()

    monkeypatch.setattr(runner, "Monitor", partial(Monitor, asleep_ns=lambda: asleep[0]))
    plan = one_block((talk("s", turns=1),), pairs=3)
    await Runner(plan, Ahead(), sleeps, leg=RunLeg(number=1), journal=Rows()).play()
    assert faults == [None] * 3
