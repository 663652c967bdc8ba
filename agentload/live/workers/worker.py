"""Make the calls that another process decides on; this is the work of a worker's node."""

import asyncio
import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.live.health import Monitor
from agentload.live.station import Job, Recorder, station, swept_rarely
from agentload.live.workers.messages import (
    Act,
    Contexts,
    Done,
    Order,
    Ready,
    StreamedTokens,
    Sync,
    Synced,
)
from agentload.live.workers.pipe import Pipe
from agentload.model.commands import Cancel, Forget, Prepare, Send
from agentload.store import journal

FLUSH_S: Final = 0.5


class Worker:
    """Carry out orders and report the calls that ended."""

    def __init__(
        self, pipe: Pipe, recorder: Recorder, writer: journal.Writer, tasks: asyncio.TaskGroup
    ) -> None:
        self._pipe = pipe
        self._recorder = recorder
        self._writer = writer
        self._tasks = tasks
        self._contexts = Contexts()
        self._in_flight = 0
        self._is_between_blocks = True
        self._monitor = Monitor(is_timing=lambda: self._in_flight > 0)
        tasks.create_task(self._monitor.beat())
        tasks.create_task(self._keep_flushing())

    def obey(self, order: Order) -> None:
        """Carry out one order of the dispatcher."""
        match order:
            case Act(command=command, kept=kept):
                self._act(command, kept)
            case Cancel():
                self._recorder.cancel(order)
            case Forget(arm=arm, session=session):
                self._contexts.forget((arm, session))
                self._recorder.forget(order)
            case Sync():
                self._tasks.create_task(self._sync())
            case _:
                raise AssertionError(f"{order} is for a node that plays a share of a plan")

    def _act(self, command: Prepare | Send, kept: int) -> None:
        call = command.call
        context = self._contexts.whole((command.arm, call.session), kept, call.context)
        whole = replace(command, call=replace(call, context=context))
        if isinstance(whole, Prepare):
            self._recorder.prepare(whole)
        else:
            if self._is_between_blocks:
                self._is_between_blocks = False
                self._monitor.open_block(self._recorder.facts())
            self._in_flight += 1
            self._tasks.create_task(self._call(whole))

    async def _call(self, send: Send) -> None:
        name = send.request_id
        called = await self._recorder.call(
            send, lambda tokens: self._pipe.say(StreamedTokens(request_id=name, tokens=tokens))
        )
        self._in_flight -= 1
        self._monitor.ended(called.row, chunks=called.chunks)
        self._pipe.say(
            Done(
                request_id=name,
                outcome=replace(called.outcome, chunks=None),
                chunks=called.chunks,
                prompt_hash=called.row.prompt_hash,
            )
        )

    async def _sync(self) -> None:
        gc.collect()  # between blocks: nothing is timed now
        self._writer.sync()
        facts = self._recorder.facts()
        self._monitor.settle(facts)
        self._is_between_blocks = True
        self._pipe.say(Synced(health=self._monitor.health(facts)))

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._writer.flush_if_due(time.monotonic_ns())


async def work(pipe: Pipe, *, job: Job, path: Path) -> None:
    """Carry out orders from *pipe* until cancelled; write the journal at *path*."""
    with journal.Writer(path) as writer:
        async with station(job, writer.append) as recorder, asyncio.TaskGroup() as tasks:
            pipe.on_message = Worker(pipe, recorder, writer, tasks).obey
            with swept_rarely():
                pipe.say(Ready())
                await asyncio.get_running_loop().create_future()
