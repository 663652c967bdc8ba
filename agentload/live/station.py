"""Hold everything that one process needs to make calls: sockets, rendered prompts, rows.

Garbage collection is kept out of what is timed: a collection stops the loop, for tens of ms
where many calls are in flight. Objects of a finished call are freed without it, as they are
written to hold no reference cycles.
"""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from agentload.dispatch.checking import answer_row
from agentload.dispatch.row import row
from agentload.errors import AgentloadError, is_out_of_memory
from agentload.live.caller import PromptCaller, RequestStyle
from agentload.live.health import Health
from agentload.live.raw import RawLog, Which
from agentload.live.target import Target
from agentload.live.wire import Wire, WireFacts
from agentload.model.commands import Cancel, Forget, Outcome, Prepare, Send
from agentload.model.record import Record
from agentload.model.rows import CallRow, Row
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import Tokenizer
from agentload.store.places import RAW

RENEW_S: Final = 300.0  # tokens that expire usually live for an hour
# Collect only after a million new container objects: so many mean cycles after
# all, or a very large load.
RARELY: Final = 1_000_000


class Called(Record):
    """Describe one attempt that is over and written down."""

    outcome: Outcome
    row: CallRow
    chunks: int
    """Number of chunk stamps in this process's journal; a worker keeps its own."""


class Recorder:
    """The `live.runner.Caller` whose sockets and journal are in this process.

    The other one is `WorkerPool`.
    """

    def __init__(
        self, caller: PromptCaller, *, run_id: str, leg: int, write: Callable[[Row], None]
    ) -> None:
        self.lead_ns = caller.lead_ns
        """How long before its instant a call comes."""
        self._caller = caller
        self._run_id = run_id
        self._leg = leg
        self._write = write

    def prepare(self, command: Prepare) -> None:
        """Render a request before its instant comes."""
        self._caller.prepare(command)

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        """Send a call, follow it to its end, write its row, and grade it if it is checked."""
        outcome, prompt_hash = await self._caller.call(send, streamed)
        ended = row(send, outcome, run_id=self._run_id, leg=self._leg, prompt_hash=prompt_hash)
        self._write(ended)
        if (graded := answer_row(send, outcome, run_id=self._run_id)) is not None:
            self._write(graded)
        return Called(outcome=outcome, row=ended, chunks=len(outcome.chunks or ()))

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection; its outcome says why."""
        self._caller.cancel(command)

    def forget(self, command: Forget) -> None:
        """Drop what is kept for a session whose play is over."""
        self._caller.forget(command)

    async def sync(self) -> None:
        """Do nothing: the owner of the journal syncs it."""

    def facts(self) -> WireFacts:
        """Return what went wrong with stamps and clocks so far."""
        return self._caller.facts()

    def workers(self) -> tuple[Health, ...]:
        """Return nothing: no other process makes calls."""
        return ()


class Raw(Record):
    """Say in which folder the bytes of which calls are kept."""

    folder: Path
    which: Which


class Job(Record):
    """Describe what each process that makes calls in one part of a run must know."""

    run_id: str
    leg: int
    seed: int
    targets: Callable[[], Iterable[Target]]
    """Makes the targets in the process that uses them; can be pickled.

    TLS keys cannot be sent to another process.
    """
    styles: Mapping[str, RequestStyle]
    trace_seed: int
    block: int
    """Tokens of a prompt block."""
    tokenizer: Tokenizer
    raw: Raw | None = None
    renews_keys: bool = False
    """Whether keys expire, so that the targets must be made again from time to time."""


@asynccontextmanager
async def station(job: Job, write: Callable[[Row], None]) -> AsyncIterator[Recorder]:
    """Give a Recorder, whose sockets are in this process."""
    renderer = Renderer(seed=job.trace_seed, block=job.block, tokenizer=job.tokenizer)
    async with AsyncExitStack() as stack:
        raw = None
        if job.raw is not None:
            # Named by the process, as several workers write into one folder.
            path = job.raw.folder / f"leg{job.leg:03}-{os.getpid()}{RAW}"
            raw = stack.enter_context(RawLog(path, which=job.raw.which))
        wire = await stack.enter_async_context(Wire(job.targets(), raw=raw))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        caller = PromptCaller(wire, job.styles, renderer, seed=job.seed)
        beside = [
            tasks.create_task(caller.render_ordered()),
            tasks.create_task(_raise_callback_errors()),
        ]
        if job.renews_keys:
            beside.append(tasks.create_task(_renewed(wire, job)))
        yield Recorder(caller, run_id=job.run_id, leg=job.leg, write=write)
        for task in beside:
            task.cancel()


async def _raise_callback_errors() -> None:
    """Raise the first exception of a callback of the loop.

    A callback has no caller to raise to, and a reader that failed once would fail for ever.
    """
    loop = asyncio.get_running_loop()
    broken: asyncio.Future[None] = loop.create_future()

    def heard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # With a handle, a callback of the loop raised. A library's transport reports errors of its
        # own, of which only running out of memory counts here.
        is_ours = "handle" in context
        if error is None or not (is_ours or is_out_of_memory(error)):
            loop.default_exception_handler(context)
        elif not broken.done():  # the first exception names the cause
            broken.set_exception(error)

    loop.set_exception_handler(heard)
    await broken


async def _renewed(wire: Wire, job: Job) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with suppress(AgentloadError):  # The old key may still be valid; if not, calls will say so.
            wire.renew(await asyncio.to_thread(lambda: tuple(job.targets())))


@contextmanager
def swept_rarely() -> Iterator[None]:
    """Collect garbage now, then leave existing objects alone and collect rarely."""
    before = gc.get_threshold()
    was_frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.set_threshold(RARELY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not was_frozen:  # a program that plays through us may have frozen objects of its own
            gc.unfreeze()
