"""A caller whose sockets and journals other processes hold:
this one only says what to send, and hears what became of it.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from agentload.dispatch.row import row
from agentload.errors import AgentloadError, LaunchError
from agentload.live.health import Health
from agentload.live.runner import Caller
from agentload.live.station import Called, Job, station
from agentload.live.workers.messages import (
    Alive,
    Broken,
    Contexts,
    Done,
    Key,
    Pipe,
    Ready,
    Report,
    Start,
    Streamed,
    Sync,
    Synced,
    Told,
    opened,
)
from agentload.model.commands import Cancel, Forget, Prepare, Send
from agentload.model.rows import Row

STOP_S: Final = 5.0
# how long before its instant a worker hears of a call: two wake-ups on a busy machine, with room
LEAD_NS: Final = 3_000_000
START_S: Final = 30.0
LOOK_S: Final = 1.0
SILENT_LOOKS: Final = 30
"""A worker says twice a second that it runs; an overloaded machine,
or a disk that a journal waits for, may make that some seconds.
"""


@dataclass(slots=True)
class Flight:
    """A call that a worker has in flight."""

    send: Send
    streamed: Callable[[int], None]
    over: asyncio.Future[Called]


@dataclass(slots=True)
class Worker:
    """One process that holds sockets and a journal for us."""

    number: int
    process: subprocess.Popen[bytes]
    ready: asyncio.Future[None]
    contexts: Contexts = field(default_factory=Contexts)
    sessions: set[Key] = field(default_factory=set)
    flights: dict[str, Flight] = field(default_factory=dict)
    synced: asyncio.Future[Synced] | None = None
    pipe: Pipe | None = None
    silent_looks: int = 0
    """How often in a row nothing had come from it."""

    def say(self, message: object) -> None:
        """Send it a message."""
        assert self.pipe is not None
        self.pipe.say(message)

    def owed(self) -> Sequence[asyncio.Future[Any]]:
        """Return what somebody waits for that it was to say."""
        everything = (self.ready, self.synced, *(flight.over for flight in self.flights.values()))
        return [future for future in everything if future is not None and not future.done()]

    def look(self) -> str | None:
        """Say how it was lost, where nothing has come from it for
        so many looks, one a second; it is not lost otherwise.

        Looks are counted, not seconds: while we stand still ourselves nobody is silent.
        """
        self.silent_looks += 1
        if self.silent_looks < SILENT_LOOKS:
            return None
        self.process.kill()  # else it may wake up and go on, with nobody to hear of it
        return f"has said nothing for {SILENT_LOOKS * LOOK_S:g} s"

    def end(self) -> str:
        """Say how it was lost, its pipe being closed."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.returncode
        return (
            "has closed its pipe"
            if code is None
            else f"was killed by signal {-code}"
            if code < 0
            else f"ended with code {code}"
        )

    def loss(self, how: str, *, run_id: str) -> LaunchError:
        """Say what its loss means, and what to do."""
        if not self.ready.done():
            return LaunchError(
                f"worker {self.number} {how} before it was ready",
                hint="play from one process: --workers 1",
            )
        return LaunchError(
            f"worker {self.number} {how}: the block pair being played is lost, what was "
            "finished is kept",
            hint=f"agentload replay … --resume {run_id}",
        )

    async def stop(self) -> None:
        """See to it that it has gone; its pipe was closed before."""
        try:
            await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


WORKER: Final = "agentload.live.workers.worker"


async def hired(
    number: int,
    order: object,
    *,
    heard: Callable[[Worker, Any], None],
    closed: Callable[[Worker], None],
    module: str = WORKER,
) -> Worker:
    """Start a process and tell it what to get ready for."""
    mine, theirs = socket.socketpair()
    with theirs:
        # A process group of its own: Ctrl-C in the terminal reaches the
        # dispatcher alone, which lets calls in flight come to their end.
        process = subprocess.Popen(  # noqa: ASYNC220  # some ms, before anything is timed
            [sys.executable, "-m", module, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )
    worker = Worker(number, process, asyncio.get_running_loop().create_future())
    worker.pipe = await opened(mine, lambda report: heard(worker, report), lambda: closed(worker))
    worker.say(order)
    return worker


class Pool:
    """Share the calls out to workers.

    Use it as an asynchronous context, with `watch` beside what is played.

    All calls of a session on an arm go to one worker,
    so that its connection and cookies are where it is.
    """

    lead_ns: Final = LEAD_NS

    def __init__(self, job: Job, *, journals: Sequence[Path]) -> None:
        """Have as many workers as there are journals."""
        self._job = job
        self._journals = tuple(journals)
        self._workers: list[Worker] = []
        self._places: dict[Key, Worker] = {}
        self._flown: dict[str, Worker] = {}
        self._early: dict[str, Cancel] = {}
        """Of calls whose Send has not gone to a worker yet."""
        self._healths: tuple[Health, ...] = ()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_leaving = False

    async def __aenter__(self) -> Self:
        try:
            for number, path in enumerate(self._journals, start=1):
                start = Start(job=self._job, journal=path)
                self._workers.append(
                    await hired(number, start, heard=self._heard, closed=self._closed)
                )
            async with asyncio.timeout(START_S):
                for worker in self._workers:
                    await worker.ready
        except TimeoutError as error:
            await self._stop()
            raise LaunchError(
                f"no worker process is ready after {START_S:g} s", hint="play with fewer --workers"
            ) from error
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def watch(self) -> None:
        """Wait until a worker is lost, be it that it says nothing any more.

        Raises LaunchError, or what the worker said.
        """
        while not (await asyncio.wait([self._failure], timeout=LOOK_S))[0]:
            for worker in self._workers:
                if (how := worker.look()) is not None:
                    self._lose(worker, worker.loss(how, run_id=self._job.run_id))
        self._require()

    def prepare(self, command: Prepare) -> None:
        """Have the session's worker render a request before its instant comes."""
        self._tell(command)

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        """Have the session's worker send a call at its
        instant, follow it to its end and write it down.
        """
        worker = self._tell(send)
        flight = Flight(send, streamed, asyncio.get_running_loop().create_future())
        worker.flights[send.request_id] = flight
        self._flown[send.request_id] = worker
        if (early := self._early.pop(send.request_id, None)) is not None:
            worker.say(early)
        try:
            return await flight.over
        finally:
            del worker.flights[send.request_id], self._flown[send.request_id]

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection; its outcome says why."""
        if (worker := self._flown.get(command.request_id)) is None:
            self._early[command.request_id] = command
        else:
            worker.say(command)

    def forget(self, command: Forget) -> None:
        """Drop what is kept for a session whose play is over."""
        key = (command.arm, command.session)
        if (worker := self._places.pop(key, None)) is not None:
            worker.sessions.discard(key)
            worker.contexts.forget(key)
            worker.say(command)

    async def sync(self) -> None:
        """Have the disk hold every call that has ended."""
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Future[Synced]] = []
        self._require()
        for worker in self._workers:
            worker.synced = loop.create_future()
            waits.append(worker.synced)
            worker.say(Sync())
        self._healths = tuple([(await wait).health for wait in waits])

    def workers(self) -> tuple[Health, ...]:
        """Return how each worker had kept up when it last synced."""
        return self._healths

    def pids(self) -> tuple[int, ...]:
        """Name the workers' processes."""
        return tuple(worker.process.pid for worker in self._workers)

    def facts(self) -> None:
        """Return nothing: what the workers' wires say is in their healths."""

    def _require(self) -> None:
        """Raise what a worker was lost by: nothing comes to an end any more."""
        if self._failure.done():
            self._failure.result()

    def _tell(self, command: Prepare | Send) -> Worker:
        self._require()
        key = (command.arm, command.call.session)
        worker = self._places.get(key)
        if worker is None:
            worker = self._places[key] = min(self._workers, key=lambda each: len(each.sessions))
            worker.sessions.add(key)
        kept, new = worker.contexts.new(key, command.call.context)
        worker.say(
            Told(command=replace(command, call=replace(command.call, context=new)), kept=kept)
        )
        return worker

    def _heard(self, worker: Worker, report: Report) -> None:
        worker.silent_looks = 0
        match report:
            case Alive():
                pass
            case Done(request_id=name, outcome=outcome, chunks=chunks, prompt_hash=prompt_hash):
                if (flight := worker.flights.get(name)) is not None and not flight.over.done():
                    ended = row(
                        flight.send,
                        outcome,
                        run_id=self._job.run_id,
                        leg=self._job.leg,
                        prompt_hash=prompt_hash,
                    )
                    flight.over.set_result(Called(outcome=outcome, row=ended, chunks=chunks))
            case Streamed(request_id=name, tokens=tokens):
                if (flight := worker.flights.get(name)) is not None:
                    flight.streamed(tokens)
            case Synced():
                if worker.synced is not None and not worker.synced.done():
                    worker.synced.set_result(report)
            case Ready():
                worker.ready.set_result(None)
            case Broken(message=message, hint=hint):
                self._lose(worker, AgentloadError(message, hint=hint))

    def _closed(self, worker: Worker) -> None:
        """Note that a worker's end is gone: nothing that it was to say will come."""
        if not self._is_leaving:
            self._lose(worker, worker.loss(worker.end(), run_id=self._job.run_id))

    def _lose(self, worker: Worker, error: AgentloadError) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # seen, even if nobody watches
        for future in worker.owed():
            future.set_exception(self._failure.exception() or error)
            future.exception()  # seen, even if who waited for it is gone

    async def _stop(self) -> None:
        """Let the workers go, and see to it that they have gone."""
        self._is_leaving = True
        for worker in self._workers:
            if worker.pipe is not None:
                worker.pipe.close()
        for worker in self._workers:
            await worker.stop()


@asynccontextmanager
async def calling(
    job: Job, write: Callable[[Row], None], *, journals: Sequence[Path] = ()
) -> AsyncIterator[Caller]:
    """Give a caller that writes its rows through *write*; with
    *journals* one worker for each, which writes its rows there.

    Raises LaunchError, within a group, when a worker is lost.
    """
    if not journals:
        async with station(job, write) as recorder:
            yield recorder
        return
    async with Pool(job, journals=journals) as pool, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(pool.watch())
        yield pool
        watching.cancel()
