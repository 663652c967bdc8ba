"""An actor on a node: holds the node's process, and
passes on what it and the driver say to each other.

Calls are made by that process, not by the actor: what Ray does in its own cannot delay them.
"""

import asyncio
import time
from contextlib import suppress
from typing import Final, Protocol

from agentload.live.workers.messages import Alive, Broken, NodeOrder, NodeReport, Play
from agentload.live.workers.pool import LOOK_S, Worker, hired

NODE: Final = "agentload.remote.node"
START_LOOKS: Final = 270
"""How much more patience it has before it first says
something: on a busy machine a process takes a while to start.
"""
POLL_LOOKS: Final = 5


class Seat(Protocol):
    """A node as the driver sees it, whoever carries what is said.

    Raises LaunchError when it is lost.
    """

    number: int

    async def say(self, order: NodeOrder) -> None:
        """Tell it to play, to go on, or to stop."""
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

    async def say(self, order: NodeOrder) -> None:
        """Start the process with what it is to play, and pass
        on the rest; to one that is gone nothing can be said.
        """
        if isinstance(order, Play):
            self._worker = await hired(
                self.number, order, heard=self._take, closed=self._lost, module=NODE
            )
            self._worker.silent_looks = -START_LOOKS
        elif self._worker is not None and self._worker.process.poll() is None:
            self._worker.say(order)

    async def heard(self) -> tuple[NodeReport, ...]:
        """Return what the process has said since the
        last time; wait a few seconds for something.
        """
        for _ in range(POLL_LOOKS):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
                break
            if self._worker is not None and (how := self._worker.look()) is not None:
                return (_broken(how),)
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

    def _take(self, worker: Worker, report: NodeReport) -> None:
        worker.silent_looks = 0
        if not isinstance(report, Alive):
            self._said.append(report)
            self._news.set()

    def _lost(self, worker: Worker) -> None:
        if self._worker is not None and not any(isinstance(each, Broken) for each in self._said):
            self._take(worker, _broken(worker.end()))


def _broken(how: str) -> Broken:
    return Broken(message=f"its process {how}", hint=None)
