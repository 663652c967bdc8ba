"""An actor on a node: holds the node's process, and passes on what it and the driver say to each other.

Calls are made by that process, not by the actor: what Ray does in its own cannot delay them.
"""

import asyncio
import platform
import time
from dataclasses import dataclass
from typing import Final, Protocol

from agentload import __version__
from agentload.live.workers.messages import Alive, Broken, NodeOrder, NodeReport, Play
from agentload.live.workers.pool import Worker, hired

NODE: Final = "agentload.remote.node"
SILENT_S: Final = 30.0
"""A node's process says twice a second that it runs."""
START_S: Final = 300.0
"""Until it does for the first time: on a busy machine a process takes a while to start."""
POLL_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a node is."""

    host: str
    version: str


class Seat(Protocol):
    """A node as the driver sees it, whoever carries what is said. Raises LaunchError when it is lost."""

    number: int

    async def begin(self, order: Play) -> Where:
        """Start the node's process."""
        ...

    async def say(self, order: NodeOrder) -> None:
        """Tell it to go on, or to stop."""
        ...

    async def heard(self) -> tuple[NodeReport, ...]:
        """Return what it has said since the last time; wait a few seconds for something."""
        ...

    async def clock_ns(self) -> int:
        """Read its monotonic clock."""
        ...


class Post:
    """What runs on the node; a seat whose driver is in the same process, as tests have it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._said: list[NodeReport] = []
        self._news = asyncio.Event()
        self._worker: Worker | None = None
        self._silent_from_s = time.monotonic()
        self._patience_s = START_S

    async def begin(self, order: Play) -> Where:
        """Start the node's process."""
        self._silent_from_s = time.monotonic()
        self._worker = await hired(self.number, order, heard=self._take, closed=self._lost, module=NODE)
        return Where(host=platform.node(), version=__version__)

    async def say(self, order: NodeOrder) -> None:
        """Pass on to the process; to one that is gone nothing can be said."""
        if self._worker is not None and self._worker.process.poll() is None:
            self._worker.say(order)

    async def heard(self) -> tuple[NodeReport, ...]:
        """Return what the process has said since the last time; wait a few seconds for something."""
        try:
            async with asyncio.timeout(POLL_S):
                await self._news.wait()
        except TimeoutError:
            if self._worker is not None and time.monotonic() - self._silent_from_s > self._patience_s:
                self._worker.process.kill()  # else it may wake up and go on, with nobody to hear of it
                return (_broken(f"has said nothing for {self._patience_s:g} s"),)
        said, self._said = tuple(self._said), []
        self._news.clear()
        return said

    async def clock_ns(self) -> int:
        """Read the clock that the node's stamps are of."""
        return time.monotonic_ns()

    async def end(self) -> None:
        """Let the process go, and see to it that it has gone."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.pipe is not None:
            worker.pipe.close()
            await worker.stop()

    def _take(self, _: Worker, report: NodeReport) -> None:
        self._silent_from_s, self._patience_s = time.monotonic(), SILENT_S
        if not isinstance(report, Alive):
            self._said.append(report)
            self._news.set()

    def _lost(self, worker: Worker) -> None:
        if self._worker is not None and not any(isinstance(each, Broken) for each in self._said):
            self._take(worker, _broken(worker.end()))


def _broken(how: str) -> Broken:
    return Broken(message=f"its process {how}", hint=None)
