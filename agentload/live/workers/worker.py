"""One worker: holds sockets and a journal, and does what the dispatcher says over a socket pair."""

import asyncio
import gc
import time
from dataclasses import replace
from typing import Final

from agentload.live.health import Monitor
from agentload.live.station import Recorder, station, swept_rarely
from agentload.live.workers.messages import (
    Contexts,
    Done,
    Order,
    Pipe,
    Ready,
    Start,
    Streamed,
    Sync,
    Synced,
    Told,
    served,
)
from agentload.model.commands import Cancel, Forget, Prepare, Send
from agentload.store import journal

FLUSH_S: Final = 0.5


class Worker:
    """Do what is ordered, and report what ended."""

    def __init__(
        self, pipe: Pipe, recorder: Recorder, writer: journal.Writer, tasks: asyncio.TaskGroup
    ) -> None:
        self._pipe = pipe
        self._recorder = recorder
        self._writer = writer
        self._tasks = tasks
        self._contexts = Contexts()
        self._in_flight = 0
        self._monitor = Monitor(is_timing=lambda: self._in_flight > 0)
        tasks.create_task(self._monitor.beat())
        tasks.create_task(self._keep_flushing())

    def heard(self, order: Order) -> None:
        """Do what the dispatcher says."""
        match order:
            case Told(command=command, kept=kept):
                self._told(command, kept)
            case Cancel():
                self._recorder.cancel(order)
            case Forget(arm=arm, session=session):
                self._contexts.forget((arm, session))
                self._recorder.forget(order)
            case Sync():
                self._tasks.create_task(self._sync())
            case Start():
                raise AssertionError("a worker starts once, with its first message")

    def _told(self, command: Prepare | Send, kept: int) -> None:
        call = command.call
        context = self._contexts.whole((command.arm, call.session), kept, call.context)
        whole = replace(command, call=replace(call, context=context))
        if isinstance(whole, Prepare):
            self._recorder.prepare(whole)
        else:
            self._send(whole)

    def _send(self, send: Send) -> None:
        self._in_flight += 1
        self._tasks.create_task(self._call(send))

    async def _call(self, send: Send) -> None:
        name = send.request_id
        called = await self._recorder.call(
            send, lambda tokens: self._pipe.say(Streamed(request_id=name, tokens=tokens))
        )
        self._in_flight -= 1
        self._monitor.ended(called.row, chunks=called.chunks)
        outcome = replace(called.outcome, chunks=None)
        self._pipe.say(
            Done(
                request_id=name,
                outcome=outcome,
                chunks=called.chunks,
                prompt_hash=called.row.prompt_hash,
            )
        )

    async def _sync(self) -> None:
        gc.collect()  # between blocks: nothing is timed now
        self._writer.sync()
        self._pipe.say(Synced(health=self._monitor.health(self._recorder.facts())))

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._writer.flush_if_due(time.monotonic_ns())


async def work(pipe: Pipe, start: Start) -> None:
    """Take orders over *pipe* for as long as they are wanted."""
    with journal.Writer(start.journal) as writer:
        async with station(start.job, writer.append) as recorder, asyncio.TaskGroup() as tasks:
            pipe.heard = Worker(pipe, recorder, writer, tasks).heard
            with swept_rarely():
                pipe.say(Ready())
                await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    served(work)
