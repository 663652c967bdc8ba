"""Have worker processes make the calls, with sockets and journals of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from agentload.dispatch.row import row
from agentload.errors import LaunchError
from agentload.live.health import Health
from agentload.live.reader import LEAD_NS as READER_LEAD_NS
from agentload.live.reader import who_reads
from agentload.live.runner import Caller
from agentload.live.station import Called, Job, station
from agentload.live.workers.messages import (
    Act,
    Contexts,
    Done,
    Key,
    Ready,
    Report,
    StreamedTokens,
    Sync,
    Synced,
)
from agentload.live.workers.node import NodeProcess, listen
from agentload.live.workers.worker import work
from agentload.model.commands import Cancel, Forget, Prepare, Send
from agentload.model.rows import Row

LEAD_NS: Final = 3_000_000
"""How long before its instant a worker is given a call: two wake-ups on a busy machine."""
START_S: Final = 30.0


@dataclass(slots=True)
class Hand:
    """A worker's node, and the sessions that it plays."""

    node: NodeProcess
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    contexts: Contexts = field(default_factory=Contexts)
    sessions: set[Key] = field(default_factory=set)
    health: asyncio.Queue[Health] = field(default_factory=asyncio.Queue)


@dataclass(slots=True)
class PendingCall:
    """A call that a worker has in flight."""

    hand: Hand
    send: Send
    streamed: Callable[[int], None]
    over: asyncio.Future[Called]


class WorkerPool:
    """Distribute the calls among workers.

    All calls of a session on an arm go to one worker, which has its connection and cookies.
    """

    def __init__(self, job: Job, *, nodes: Sequence[NodeProcess]) -> None:
        """Use one worker on each of the *nodes*."""
        self._job = job
        reader_ns = READER_LEAD_NS if who_reads()[0] == "thread" else 0
        self.lead_ns = LEAD_NS + reader_ns
        self._hands = tuple(Hand(node) for node in nodes)
        self._places: dict[Key, Hand] = {}
        self._flights: dict[str, PendingCall] = {}
        self._early: dict[str, Cancel] = {}
        """Cancels of calls that no worker has been given yet."""
        self._healths: tuple[Health, ...] = ()

    def follow(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Follow the workers' reports, in tasks that raise LaunchError when a worker is lost."""
        return [tasks.create_task(self._follow(hand)) for hand in self._hands]

    async def start(self, journals: Sequence[Path]) -> None:
        """Start a worker for each journal; raise LaunchError unless all become ready in time."""
        for hand, path in zip(self._hands, journals, strict=True):
            await hand.node.start(partial(work, job=self._job, path=path))
        try:
            async with asyncio.timeout(START_S):
                for hand in self._hands:
                    await hand.ready.wait()
        except TimeoutError as error:
            raise LaunchError(
                f"no worker process is ready after {START_S:g} s", hint="play with fewer --workers"
            ) from error

    def prepare(self, command: Prepare) -> None:
        """Have the session's worker render a request before its instant comes."""
        self._act(command)

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        """Have the session's worker send a call at its instant; wait for its end."""
        name = send.request_id
        over: asyncio.Future[Called] = asyncio.get_running_loop().create_future()
        hand = self._act(send)
        self._flights[name] = PendingCall(hand, send, streamed, over)
        early = self._early.pop(name, None)
        if early is not None:
            hand.node.say(early)
        try:
            return await over
        finally:
            del self._flights[name]

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection; its outcome says why."""
        flight = self._flights.get(command.request_id)
        if flight is None:
            self._early[command.request_id] = command
        else:
            flight.hand.node.say(command)

    def forget(self, command: Forget) -> None:
        """Drop what is kept for a session whose play is over."""
        key = (command.arm, command.session)
        hand = self._places.pop(key, None)
        if hand is not None:
            hand.sessions.discard(key)
            hand.contexts.forget(key)
            hand.node.say(command)

    async def sync(self) -> None:
        """Have the disk hold every call that has ended."""
        for hand in self._hands:
            while not hand.health.empty():  # left over from a sync that was given up
                hand.health.get_nowait()
            hand.node.say(Sync())
        self._healths = tuple([await hand.health.get() for hand in self._hands])

    def workers(self) -> tuple[Health, ...]:
        """Return how each worker had kept up when it last synced."""
        return self._healths

    def facts(self) -> None:
        """Return nothing: the workers report what went wrong with their wires."""

    def _act(self, command: Prepare | Send) -> Hand:
        key = (command.arm, command.call.session)
        hand = self._places.get(key)
        if hand is None:
            hand = self._places[key] = min(self._hands, key=lambda each: len(each.sessions))
            hand.sessions.add(key)
        kept, new = hand.contexts.new(key, command.call.context)
        hand.node.say(
            Act(command=replace(command, call=replace(command.call, context=new)), kept=kept)
        )
        return hand

    async def _follow(self, hand: Hand) -> None:
        while True:
            for report in await listen(hand.node, partial(self._loss, hand)):
                self._take(hand, report)

    def _take(self, hand: Hand, report: Report) -> None:
        match report:
            case Done():
                self._end(report)
            case StreamedTokens(request_id=name, tokens=tokens):
                if (flight := self._flights.get(name)) is not None:
                    flight.streamed(tokens)
            case Synced(health=health):
                hand.health.put_nowait(health)
            case Ready():
                hand.ready.set()
            case _:
                raise AssertionError(f"{report} is of a node that plays a share of a plan")

    def _end(self, done: Done) -> None:
        flight = self._flights.get(done.request_id)
        if flight is None or flight.over.done():
            return
        job, outcome = self._job, done.outcome
        ended = row(
            flight.send, outcome, run_id=job.run_id, leg=job.leg, prompt_hash=done.prompt_hash
        )
        flight.over.set_result(Called(outcome=outcome, row=ended, chunks=done.chunks))

    def _loss(self, hand: Hand, how: str) -> LaunchError:
        """Return the error for a lost worker, with what to do."""
        who = f"worker {hand.node.number} {how}"
        if not hand.ready.is_set():
            return LaunchError(
                f"{who} before it was ready", hint="play from one process: --workers 1"
            )
        return LaunchError(
            f"{who}: the block pair being played is lost, what was finished is kept",
            hint=f"agentload replay … --resume {self._job.run_id}",
        )


@asynccontextmanager
async def calling(
    job: Job, write: Callable[[Row], None], *, journals: Sequence[Path] = ()
) -> AsyncIterator[Caller]:
    """Give a caller that makes calls here, or one with a worker for each of the *journals*.

    Calls made here are written through *write*. Raises LaunchError, within a group, when a worker
    is lost.
    """
    if not journals:
        async with station(job, write) as recorder:
            yield recorder
        return
    nodes = [NodeProcess(number) for number in range(1, len(journals) + 1)]
    pool = WorkerPool(job, nodes=nodes)
    try:
        async with asyncio.TaskGroup() as tasks:
            following = pool.follow(tasks)
            await pool.start(journals)
            yield pool
            for task in following:
                task.cancel()
    finally:
        await asyncio.gather(*(node.end() for node in nodes))
