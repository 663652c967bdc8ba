"""Play a share of a plan on a node, and wait for the driver between blocks.

A player has a dispatcher, callers and journals of its own. While it plays a block, the only
orders it is sent are to stop, or to leave a dead arm.
"""

import asyncio
import pickle
import shutil
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import field

from agentload.dispatch.dispatcher import PlayEnd
from agentload.errors import LaunchError
from agentload.live.runner import RunLeg, Runner
from agentload.live.station import Job
from agentload.live.workers.messages import Go, Order, Over, Reached, Ready
from agentload.live.workers.pipe import Pipe
from agentload.live.workers.pool import calling
from agentload.model.commands import Lost, Open, Settle, Stopped
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.remote.shards import Shards
from agentload.store import journal
from agentload.store.places import journal_folder, worker_journals

SECOND: Final = 1_000_000_000


class PlayShare(Record):
    """Hold what a node needs to play a share of a plan; calling it plays the share."""

    job: Job
    workers: int = 1
    done: frozenset[int] = frozenset()
    voided: Mapping[int, int] = field(default_factory=dict)
    folder: Path | None = None
    """Folder of the journals, if every node sees it; None: nodes keep theirs and send shards."""
    share: bytes = b""
    """The node's share of the plan, pickled; `name` is the digest of these bytes."""
    name: str = ""
    number: int = 0
    """Number of the node."""

    async def __call__(self, pipe: Pipe) -> None:
        """Play the share; raise LaunchError if its bytes do not have the digest `name`."""
        if sha256(self.share).hexdigest() != self.name:
            raise LaunchError(
                f"node {self.number} got another share of the plan than was sent to it",
                hint="start the replay again",
            )
        share: Plan = pickle.loads(self.share)  # noqa: S301  # its digest is the driver's
        folder = self.folder or Path(tempfile.mkdtemp(prefix="agentload-"))
        path = (
            journal_folder(folder / "nodes", self.job.run_id)
            / f"leg{self.job.leg:03}-node{self.number}.journal"
        )
        pools = () if self.workers == 1 else worker_journals(path, self.workers)
        with journal.Writer(path) as writer:
            shards = Shards((path, *pools), self.name, is_seen=self.folder is not None)
            async with calling(self.job, writer.append, journals=pools) as caller:
                rounds = _Rounds(pipe, writer, shards)
                rounds.runner = Runner(
                    share,
                    caller,
                    rounds.reach,
                    leg=RunLeg(number=self.job.leg, done=self.done, voided=self.voided),
                    journal=writer,
                    opening=rounds.reach,
                )
                await rounds.play()
        # The driver has all rows by now; a run that was lost leaves its journals here.
        if self.folder is None:
            shutil.rmtree(folder)
        pipe.say(Over())


class _Rounds:
    """Take a runner from barrier to barrier; at each one, wait for the driver."""

    runner: Runner

    def __init__(self, pipe: Pipe, writer: journal.Writer, shards: Shards) -> None:
        self._pipe = pipe
        self._writer = writer
        self._shards = shards
        self._going: asyncio.Queue[Go] = asyncio.Queue()
        self._is_stopped = False

    async def play(self) -> None:
        """Start when the driver says so; if stopped before that, play nothing."""
        self._pipe.on_message = self._obey
        self._pipe.say(Ready())
        await self._go_on()
        if not self._is_stopped:
            await self.runner.play()

    async def reach(
        self, command: Settle | Open, ends: tuple[PlayEnd, ...] = (), **_: object
    ) -> tuple[tuple[int, str], ...]:
        """Report what a round measured and wait for the next; return the invalid pairs.

        What interrupted the round is part of this side's health.
        """
        self._writer.sync()
        shard = await asyncio.to_thread(self._shards.cut)
        self._pipe.say(Reached(command=command, ends=ends, health=self.runner.taken(), shard=shard))
        return await self._go_on()

    async def _go_on(self) -> tuple[tuple[int, str], ...]:
        """Wait for the driver's `Go`, then until its instant; return the invalid pairs."""
        go = await self._going.get()
        await asyncio.sleep(max(0, go.at_ns - time.monotonic_ns()) / SECOND)
        return go.void

    def _obey(self, order: Order) -> None:
        match order:
            case Go():
                self._going.put_nowait(order)
            case Stopped(drain=drain):
                self._is_stopped = True
                self.runner.stop(drain=drain)
            case Lost(arm=arm, for_good=for_good):
                self.runner.lose(arm, for_good=for_good)
            case _:
                raise AssertionError(f"{order} is for a node that makes another's calls")
