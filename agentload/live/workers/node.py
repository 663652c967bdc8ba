"""Run a node: a process on this machine that is started, given orders, watched and ended.

A dispatcher has nodes on its own machine (`--workers`). On other machines a node is a Ray actor
(`--on`), whose methods the driver calls. The node's process makes the calls to servers, so that
Ray's own work cannot delay them.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from agentload.errors import AgentloadError, LaunchError
from agentload.live.workers.messages import Alive, BrokenNode, Gone, Order, Report
from agentload.live.workers.pipe import Pipe, connect
from agentload.live.workers.process import Work

STOP_S: Final = 5.0
LOOK_S: Final = 1.0
SILENT_LOOKS: Final = 30
"""Seconds without a message after which a node is given up.

A node reports twice a second that it runs; an overloaded machine, or a disk that a journal
waits for, may delay that by some seconds.
"""
START_LOOKS: Final = 270
"""Extra looks before a node's first message, as a process takes a while to start."""
POLL_S: Final = 5.0


class Seat(Protocol):
    """Describe a node as a dispatcher sees it: a process on this machine, or an actor."""

    number: int

    async def start(self, work: Work) -> None:
        """Start the process and give it its work."""
        ...

    def say(self, order: Order) -> None:
        """Give the process an order, which is lost if the process is gone or not there yet."""
        ...

    async def reports(self) -> tuple[Report, ...]:
        """Return what the process has reported since the last call; wait some seconds for it."""
        ...

    async def clock_ns(self) -> int:
        """Read the clock that the node's stamps use."""
        ...


async def listen(seat: Seat, loss: Callable[[str], LaunchError]) -> tuple[Report, ...]:
    """Return what a node reports next, if anything.

    Raises the error that a broken node reports, and the *loss* of a node that is gone.
    """
    reports = await seat.reports()
    for report in reports:
        if isinstance(report, BrokenNode):
            raise AgentloadError(report.message, hint=report.hint)
        if isinstance(report, Gone):
            raise loss(report.how)
    return reports


class NodeProcess:
    """Run one process that works for the dispatcher."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._reports: list[Report] = []
        self._news = asyncio.Event()
        self._silent_looks = -START_LOOKS
        self._next_look: asyncio.TimerHandle | None = None

    async def start(self, work: Work) -> None:
        """Start the process and give it its work."""
        mine, theirs = socket.socketpair()
        with theirs:
            # A process group of its own: Ctrl-C in the terminal reaches the dispatcher alone,
            # which lets calls in flight come to their end.
            self.process = subprocess.Popen(  # noqa: ASYNC220  # some ms, before anything is timed
                [sys.executable, "-m", "agentload.live.workers.process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self._pipe = await connect(mine, self._take, self._closed)
        self._pipe.say(work)
        self._wait()

    def say(self, order: Order) -> None:
        """Give the process an order, which is lost if the process is gone or not there yet."""
        if self._pipe is not None:
            self._pipe.say(order)

    async def reports(self) -> tuple[Report, ...]:
        """Return what the process has reported since the last call; wait some seconds for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._news.wait()
        self._news.clear()
        reports, self._reports = tuple(self._reports), []
        return reports

    async def clock_ns(self) -> int:
        """Read the clock that the node's stamps use."""
        return time.monotonic_ns()

    async def end(self) -> None:
        """Tell the process to end; kill it if it does not."""
        pipe, self._pipe = self._pipe, None
        if pipe is None or self.process is None:
            return
        self._stop_looking()
        pipe.close()
        try:
            await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _take(self, report: Report) -> None:
        self._silent_looks = 0
        if not isinstance(report, Alive):
            self._reports.append(report)
            self._news.set()

    def _wait(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Count a look, one a second, at which nothing had come; after many, give up the node.

        Looks are counted, not seconds: while this process itself is stalled, no node is silent.
        """
        self._silent_looks += 1
        if self._silent_looks < SILENT_LOOKS:
            self._wait()
            return
        assert self.process is not None
        # Otherwise it may wake up and continue, with nobody to receive its reports
        self.process.kill()
        self._take(Gone(how=f"has said nothing for {SILENT_LOOKS * LOOK_S:g} s"))

    def _closed(self) -> None:
        """Report how the process ended, unless this side ended it."""
        if self._pipe is None or self.process is None:
            return
        self._stop_looking()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.returncode
        if code is None:
            how = "has closed its pipe"
        elif code < 0:
            how = f"was killed by signal {-code}"
        else:
            how = f"ended with code {code}"
        self._take(Gone(how=how))

    def _stop_looking(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
