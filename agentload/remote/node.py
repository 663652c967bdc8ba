"""One node's process: plays a share of a plan by itself, and waits for the driver between blocks.

It has a dispatcher, callers and journals of its own, and
hears nothing while a block is played but that it is to stop.
"""

import asyncio
import pickle
import shutil
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

from agentload.dispatch.dispatcher import PlayEnd
from agentload.errors import LaunchError
from agentload.live.runner import Runner
from agentload.live.workers.messages import Go, NodeOrder, Over, Pipe, Play, Reached, Ready, served
from agentload.live.workers.pool import calling
from agentload.model.commands import Lost, Open, Settle, Stopped
from agentload.model.plan import Plan
from agentload.remote.shards import Shards
from agentload.store import journal
from agentload.store.places import journal_folder, worker_journals

SECOND: Final = 1_000_000_000


class Node:
    """Play a share from barrier to barrier."""

    def __init__(self, order: Play, pipe: Pipe) -> None:
        self._order = order
        self._pipe = pipe
        self._going: asyncio.Queue[Go] = asyncio.Queue()
        self._runner: Runner | None = None
        self._is_stopped = False

    def heard(self, order: NodeOrder) -> None:
        """Do what the driver says."""
        match order:
            case Go():
                self._going.put_nowait(order)
            case Stopped(drain=drain) if self._runner is not None:
                self._is_stopped = True
                self._runner.stop(drain=drain)
            case Lost(arm=arm, for_good=for_good) if self._runner is not None:
                self._runner.lose(arm, for_good=for_good)
            case _:
                pass

    async def play(self) -> None:
        """Play to the end. Raises LaunchError where the share is not the one that was named."""
        order = self._order
        if sha256(order.share).hexdigest() != order.name:
            raise LaunchError(
                f"node {order.number} got another share of the plan than was sent to it",
                hint="start the replay again",
            )
        share: Plan = pickle.loads(order.share)  # noqa: S301  # its digest is the driver's
        folder = order.folder or Path(tempfile.mkdtemp(prefix="agentload-"))
        path = (
            journal_folder(folder / "nodes", order.job.run_id)
            / f"leg{order.job.leg:03}-node{order.number}.journal"
        )
        pools = () if order.workers == 1 else worker_journals(path, order.workers)
        with journal.Writer(path) as writer:
            shards = Shards((path, *pools), order.name, path if order.folder else None)

            async def reached(
                command: Settle | Open, ends: tuple[PlayEnd, ...] = ()
            ) -> tuple[tuple[int, str], ...]:
                writer.sync()
                shard = await asyncio.to_thread(shards.cut, command.round)
                self._pipe.say(
                    Reached(command=command, ends=ends, health=runner.taken(), shard=shard)
                )
                return await self._gone()

            async with calling(order.job, writer.append, journals=pools) as caller:
                self._runner = runner = Runner(
                    share,
                    caller,
                    reached,
                    leg=order.job.leg,
                    write=writer.append,
                    flush=lambda: writer.flush_if_due(time.monotonic_ns()),
                    opening=reached,
                    done=order.done,
                    voided=order.voided,
                )
                self._pipe.say(Ready())
                await self._gone()
                if (
                    not self._is_stopped
                ):  # before the first block there is nothing to bring to an end
                    await runner.play()
        if order.folder is None:  # the driver has it all; a run that was lost leaves its journals
            shutil.rmtree(folder)
        self._pipe.say(Over())

    async def _gone(self) -> tuple[tuple[int, str], ...]:
        """Wait for the driver's word, and then for the instant in it."""
        go = await self._going.get()
        await asyncio.sleep(max(0, go.at_ns - time.monotonic_ns()) / SECOND)
        return go.void


async def work(pipe: Pipe, order: Play) -> None:
    """Play a share, and then wait to be let go."""
    node = Node(order, pipe)
    pipe.heard = node.heard
    await node.play()


if __name__ == "__main__":
    served(work)
