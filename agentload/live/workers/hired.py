"""A worker as the dispatcher sees it: its process, its pipe, what it was told and has not answered yet."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentload.errors import LaunchError
from agentload.live.recorder import Called
from agentload.live.station import Job
from agentload.live.workers.contexts import Contexts, Key
from agentload.live.workers.messages import Report, Start, Synced
from agentload.live.workers.pipe import Pipe, opened
from agentload.model.commands import Send

STOP_S: Final = 5.0


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

    def end(self) -> str:
        """Say how it was lost, its pipe being closed."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.returncode
        return "has closed its pipe" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"

    def loss(self, how: str, *, run_id: str) -> LaunchError:
        """Say what its loss means, and what to do."""
        if not self.ready.done():
            return LaunchError(f"worker {self.number} {how} before it was ready", hint="play with --workers 1 to go on without")
        return LaunchError(
            f"worker {self.number} {how}: the block pair being played is lost, what was finished is kept",
            hint=f"agentload replay … --resume {run_id}",
        )

    async def stop(self) -> None:
        """See to it that it has gone; its pipe was closed before."""
        try:
            await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def hired(
    number: int, job: Job, journal: Path, *, heard: Callable[[Worker, Report], None], closed: Callable[[Worker], None]
) -> Worker:
    """Start a worker and tell it what to get ready for."""
    mine, theirs = socket.socketpair()
    with theirs:
        # A process group of its own: Ctrl-C in the terminal reaches the dispatcher alone, which lets calls in flight come to their end.
        process = subprocess.Popen(  # noqa: ASYNC220  # some ms, before anything is timed
            [sys.executable, "-m", "agentload.live.workers.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            process_group=0,
        )
    worker = Worker(number, process, asyncio.get_running_loop().create_future())
    worker.pipe = await opened(mine, lambda report: heard(worker, report), lambda: closed(worker))
    worker.say(Start(job=job, journal=journal))
    return worker
