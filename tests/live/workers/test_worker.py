from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agentload.dispatch.row import row
from agentload.live.health import Monitor
from agentload.live.station import Called
from agentload.live.wire import WireFacts
from agentload.live.workers import worker
from agentload.live.workers.messages import Act, Order, Report, Sync, Synced
from agentload.live.workers.worker import Worker
from agentload.model.commands import Call, Limits, Outcome, Send
from agentload.model.trace import Segment
from agentload.store import journal

SECOND = 1_000_000_000


class Ends:
    """End every call at once, and say how often the wall clock was stepped."""

    def __init__(self) -> None:
        self.steps = 0

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        outcome = Outcome(status="ok", sent_ns=send.released_ns, done_ns=send.released_ns)
        return Called(outcome=outcome, row=row(send, outcome, run_id="run", leg=1), chunks=0)

    def facts(self) -> WireFacts:
        return WireFacts(
            unstamped_reads=0, unstamped_sends=0, clock_steps=self.steps, largest_step_ns=0
        )


class Said:
    """Keep what a worker reports."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def say(self, report: Report) -> None:
        self.reports.append(report)


def act() -> Act:
    context = (Segment(role="user", tokens=4, key="s"),)
    call = Call(session="s", turn=0, workload="chat", context=context, context_tokens=4, output=3)
    now_ns = time.monotonic_ns()
    return Act(
        command=Send(
            request_id="r",
            call=call,
            attempt=0,
            retry_of=None,
            arm="a",
            block=0,
            pair=0,
            due_ns=now_ns,
            released_ns=now_ns,
            salt="s",
            limits=Limits(),
        ),
        kept=0,
    )


async def test_a_worker_s_machine_that_sleeps_between_blocks_interrupts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep, ends, said = [0], Ends(), Said()
    monkeypatch.setattr(worker, "Monitor", partial(Monitor, asleep_ns=lambda: asleep[0]))

    async def obeyed(*orders: Order) -> None:
        for order in orders:
            made.obey(order)
            await asyncio.sleep(0.01)

    async def rest() -> None:
        asleep[0] += 3_600 * SECOND
        ends.steps += 1

    with journal.Writer(tmp_path / "w.journal") as writer:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            made = Worker(said, ends, writer, tasks)  # type: ignore[arg-type]  # as far as used
            await rest()  # before the first block
            await obeyed(act(), Sync())
            await rest()  # between two
            await obeyed(act(), Sync(), act())
            await rest()  # within the third
            await obeyed(Sync())
            for task in tasks._tasks:  # those that beat and flush for ever
                task.cancel()
    found = [each.health.interruption for each in said.reports if isinstance(each, Synced)]
    assert found == [None, None, "this machine slept for 3600 s during the block"]
