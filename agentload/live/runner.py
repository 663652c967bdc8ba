"""Drive a plan over real sockets: pass events to the dispatcher, act on commands, write rows."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, assert_never

from msgspec import field

from agentload.dispatch.dispatcher import Dispatcher, PlayEnd
from agentload.dispatch.row import row
from agentload.live.alarm import Waker
from agentload.live.health import Health, Monitor
from agentload.live.station import Called, swept_rarely
from agentload.live.wire import WireFacts
from agentload.model.commands import (
    Cancel,
    Chunks,
    Command,
    Ended,
    Event,
    Finish,
    Forget,
    Lost,
    Open,
    Opened,
    Outcome,
    Prepare,
    Send,
    Settle,
    Settled,
    Skip,
    Started,
    Stopped,
    Wake,
    Woke,
)
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.model.rows import BlockRow, CallRow, Row

FLUSH_S = 0.5


class Caller(Protocol):
    """Prepare requests, carry them out and write their rows."""

    @property
    def lead_ns(self) -> int:
        """How long before its instant a call is handed over; the caller waits for the rest."""
        ...

    def prepare(self, command: Prepare) -> None:
        """Render a request before its instant comes."""
        ...

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        """Send a call at its instant, follow its answer, write its row and return how it ended.

        Token counts of a watched call are reported to *streamed*.
        """
        ...

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection; its outcome says why."""
        ...

    def forget(self, command: Forget) -> None:
        """Drop what is kept for a session whose play is over."""
        ...

    async def sync(self) -> None:
        """Have the disk hold every call that has ended, if another process writes them."""
        ...

    def facts(self) -> WireFacts | None:
        """Return what went wrong with stamps and clocks, if this process holds the sockets."""
        ...

    def workers(self) -> tuple[Health, ...]:
        """Return how each process that holds sockets kept up, as of its last sync."""
        ...


class Listener(Protocol):
    """Receive what goes out and how it ended, to show it."""

    def sent(self, send: Send) -> None:
        """Note that a call went out."""
        ...

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note that an attempt is over."""
        ...


class Settling(Protocol):
    """Stand between two rounds: close the blocks, read identity, telemetry and load."""

    def __call__(
        self, settle: Settle, ends: tuple[PlayEnd, ...], /, *, fault: str | None, again: bool
    ) -> Awaitable[tuple[tuple[int, str], ...]]:
        """Close the round's blocks and return the pairs that are invalid, each with its reason.

        *fault* is what those who played the round found wrong; *again* repeats the round for it.
        """
        ...


class Journal(Protocol):
    """Take rows, and hand them over to the kernel now and then."""

    def append(self, row: Row) -> None:
        """Add one row."""
        ...

    def flush_if_due(self, now_ns: int) -> None:
        """Flush if the last flush is long ago; the caller owns the clock."""
        ...


class RunLeg(Record):
    """One leg of a run, and what earlier legs leave of the plan to play."""

    number: int
    done: frozenset[int] = frozenset()
    """Pairs that are measured."""
    voided: Mapping[int, int] = field(default_factory=dict)
    """How often each other pair was played in vain."""


Opening = Callable[[Open], Awaitable[object]]
"""Called before a round: starts the round's servers, if they do not run all the time."""


class Runner:
    """Connect a dispatcher with a caller, a clock and a journal."""

    def __init__(
        self,
        plan: Plan,
        caller: Caller,
        barrier: Settling,
        *,
        leg: RunLeg,
        journal: Journal,
        opening: Opening | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._plan = plan
        self._caller = caller
        self._barrier = barrier
        self._opening = opening
        self._leg = leg
        self._journal = journal
        self._listeners = tuple(listeners)
        self._dispatcher = Dispatcher(
            plan, leg=leg.number, done=leg.done, voided=leg.voided, lead_ns=caller.lead_ns
        )
        self._monitor = Monitor(is_timing=lambda: self._dispatcher.is_playing, arms=len(plan.arms))
        self._tasks: asyncio.TaskGroup | None = None
        self._alarm: Waker | None = None
        self._finished = asyncio.Event()
        self._is_stopping = False
        self._failure: Exception | None = None

    async def play(self) -> Health:
        """Play the plan to its end; after `stop`, until nothing is in flight."""
        with swept_rarely():
            return await self._play()

    async def _play(self) -> Health:
        self._alarm = Waker(self._woke)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                watching = [
                    tasks.create_task(self._monitor.beat()),
                    tasks.create_task(self._keep_flushing()),
                ]
                self._tell(Started(at_ns=time.monotonic_ns()))
                await self._finished.wait()
                if self._failure is not None:
                    raise self._failure
                await self._caller.sync()
                for task in watching:
                    task.cancel()
        finally:
            self._alarm.close()
            self._flush()
        return self.health()

    def closed(self, block: BlockRow) -> None:
        """Note a block as it is stored, and whether its calls count."""
        self._monitor.closed(block)

    def health(self) -> Health:
        """Return how well this side has kept up so far."""
        return self._monitor.health(self._caller.facts(), workers=self._caller.workers())

    def taken(self) -> Health:
        """Return how well this side has kept up since the last call; use between blocks."""
        found = self.health()
        self._monitor.begin(self._caller.facts())
        return found

    def stop(self, *, drain: bool = True) -> None:
        """Release nothing more; with *drain* let calls in flight end, otherwise cancel them."""
        if self._tasks is not None and not self._finished.is_set():
            self._is_stopping = True
            self._tell(Stopped(at_ns=time.monotonic_ns(), drain=drain))

    def lose(self, arm: str, *, for_good: bool) -> None:
        """Release nothing more on an arm whose endpoint is dead: in this round, or for good."""
        self._tell(Lost(at_ns=time.monotonic_ns(), arm=arm, for_good=for_good))

    def _woke(self) -> None:
        try:
            self._tell(Woke(at_ns=time.monotonic_ns()))
        # Nobody would catch an exception of a callback, so the run ends with it.
        except Exception as error:  # noqa: BLE001
            self._failure = error
            self._finished.set()

    def _tell(self, event: Event) -> None:
        for command in self._dispatcher.handle(event):
            self._act(command)

    def _act(self, command: Command) -> None:
        assert self._tasks is not None
        assert self._alarm is not None
        match command:
            case Send():
                self._tasks.create_task(self._calls(command))
            case Prepare():
                self._caller.prepare(command)
            case Wake(at_ns=at_ns):
                self._alarm.set(at_ns)
            case Cancel():
                self._caller.cancel(command)
            case Forget():
                self._caller.forget(command)
            case Skip(send=send):
                unsent = Outcome(status="not_sent")
                leg = self._leg.number
                self._journal.append(row(send, unsent, run_id=self._plan.run, leg=leg))
            case Settle():
                self._tasks.create_task(self._settle(command))
            case Open():
                self._tasks.create_task(self._open(command))
            case Finish():
                self._finished.set()
            case _:
                assert_never(command)

    async def _calls(self, send: Send | None) -> None:
        """Follow a call, and then one that its end releases.

        In a task of its own, the second call would be sent a turn of the loop later.
        """
        while send is not None:
            ended, send = await self._call(send), None
            for command in self._dispatcher.handle(ended):
                if send is None and isinstance(command, Send):
                    send = command
                else:
                    self._act(command)

    async def _call(self, send: Send) -> Ended:
        def streamed(tokens: int) -> None:
            self._tell(Chunks(at_ns=time.monotonic_ns(), request_id=send.request_id, tokens=tokens))

        for listener in self._listeners:
            listener.sent(send)
        called = await self._caller.call(send, streamed)
        self._monitor.ended(called.row, chunks=called.chunks)
        for listener in self._listeners:
            listener.ended(send, called.row)
        return Ended(at_ns=time.monotonic_ns(), request_id=send.request_id, outcome=called.outcome)

    async def _settle(self, command: Settle) -> None:
        self._flush()
        gc.collect()  # nothing is timed now
        # The calls of a block must be on disk before the block is said to be whole
        await self._caller.sync()
        fault = self._monitor.settle(self._caller.facts(), workers=self._caller.workers())
        void = await self._barrier(
            command, self._dispatcher.ended_plays(), fault=fault, again=fault is not None
        )
        self._monitor.open_block(self._caller.facts())
        self._tell(Settled(at_ns=time.monotonic_ns(), void=() if self._is_stopping else void))

    async def _open(self, command: Open) -> None:
        assert self._opening is not None, "the plan starts servers, and nobody is there to do it"
        await self._opening(command)
        self._monitor.open_block(self._caller.facts())
        self._tell(Opened(at_ns=time.monotonic_ns()))

    def _flush(self) -> None:
        self._journal.flush_if_due(time.monotonic_ns())

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flush()
