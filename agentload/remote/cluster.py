"""Nodes of a Ray cluster as seats: one actor on each, and what is said goes as calls of actors.

Ray starts the actors, each on a node of its own, carries messages and notices nodes that
are gone. It repeats nothing: a call of a run that were made twice would be measured twice.
"""

import asyncio
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from agentload.errors import LaunchError, UsageError
from agentload.live.workers.messages import NodeOrder, NodeReport, Play
from agentload.remote.post import Post
from agentload.study.kinds import Replay

NAME: Final = "ray"
CONNECT_S: Final = 10.0
PLACING_S: Final = 60.0
ANSWER_S: Final = 60.0
START_S: Final = 300.0
"""An actor imports the package first, on a node that has not read it yet."""
T = TypeVar("T")


def check(study: Replay) -> None:
    """Raise UsageError for a study that asks for another
    cluster than Ray's, or for what nodes cannot do.
    """
    if study.on is not None and study.on.partition(":")[0] != NAME:
        raise UsageError(
            f"--on is ray or ray:ADDRESS, got '{study.on}'", hint="--on ray:10.0.0.1:6379"
        )
    if study.on is not None and study.keep_raw is not None:
        raise UsageError(
            "--keep-raw keeps bytes where calls are made, which is on the nodes",
            hint="leave out --keep-raw, or --on",
        )


class Actor:
    """A node of a cluster."""

    # Ray makes its types as it runs
    def __init__(self, number: int, actor: Any, resume: str) -> None:  # noqa: ANN401
        self.number = number
        self._actor = actor
        self._resume = resume

    async def say(self, order: NodeOrder) -> None:
        """Tell it to play, to go on, or to stop."""
        await self._answer(
            self._actor.say.remote(order), within_s=START_S if isinstance(order, Play) else ANSWER_S
        )

    async def heard(self) -> tuple[NodeReport, ...]:
        """Return what it has said since the last time; wait a few seconds for something."""
        said: tuple[NodeReport, ...] = await self._answer(self._actor.heard.remote())
        return said

    async def clock_ns(self) -> int:
        """Read its monotonic clock."""
        at_ns: int = await self._answer(self._actor.clock_ns.remote())
        return at_ns

    async def end(self) -> None:
        """Let the node's process go."""
        await self._answer(self._actor.end.remote())

    # as above
    async def _answer(self, answer: Any, *, within_s: float = ANSWER_S) -> Any:  # noqa: ANN401
        ray = _ray()
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.wrap_future(answer.future())
        except TimeoutError as error:
            raise LaunchError(
                f"node {self.number} has not answered for {within_s:g} s", hint=self._resume
            ) from error
        except (
            ray.exceptions.RayActorError,
            ray.exceptions.RaySystemError,
            ConnectionError,
        ) as error:
            raise LaunchError(
                f"node {self.number} is lost: {_first_line(error)}", hint=self._resume
            ) from error
        except ray.exceptions.RayTaskError as error:
            raise LaunchError(
                f"node {self.number}: {_last_line(error)}",
                hint="install the same agentload[ray] on every node",
            ) from error


@asynccontextmanager
async def seats(on: str, *, nodes: int | None, resume: str) -> AsyncIterator[tuple[Actor, ...]]:
    """Give an actor on each of so many nodes, or on all.

    Raises LaunchError where the cluster has fewer, or one is lost; see *resume*.
    """
    with joined(on) as ray:
        alive = [
            each for each in ray.nodes() if each["Alive"] and each["Resources"].get("CPU", 0) >= 1
        ]
        count = len(alive) if nodes is None else nodes
        if not 1 <= count <= len(alive):
            raise LaunchError(
                f"the cluster has {len(alive)} nodes with a core to give, not {count}",
                hint="--nodes, or more nodes",
            )
        async with _placed(ray, count, resume) as found:
            yield found


@contextmanager
def joined(on: str) -> Iterator[Any]:
    """Give Ray, with this process as a driver in its cluster.

    Raises LaunchError where there is none.
    """
    ray = _ray()
    address = on.removeprefix(NAME).removeprefix(":") or os.environ.get("RAY_ADDRESS") or "auto"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host:  # Ray itself asks for minutes whether there is somebody
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None,
            namespace="agentload",
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise LaunchError(
            f"no Ray cluster at {address}: {_first_line(error)}",
            hint="ray start --head, or --on ray:ADDRESS",
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@asynccontextmanager
# a module
async def _placed(ray: Any, count: int, resume: str) -> AsyncIterator[tuple[Actor, ...]]:  # noqa: ANN401
    placing, strategies = (
        importlib.import_module(f"ray.util.{each}")
        for each in ("placement_group", "scheduling_strategies")
    )
    group = placing.placement_group([{"CPU": 1}] * count, strategy="STRICT_SPREAD")
    try:
        if not await asyncio.to_thread(group.wait, PLACING_S):
            raise LaunchError(
                f"{count} nodes had no core to give within {PLACING_S:g} s",
                hint="end what runs there, or --nodes with fewer",
            )
        made = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Post)
        found = []
        for place in range(count):
            where = strategies.PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=place
            )
            found.append(
                Actor(place + 1, made.options(scheduling_strategy=where).remote(place + 1), resume)
            )
        try:
            yield tuple(found)
        finally:
            await asyncio.gather(*(each.end() for each in found), return_exceptions=True)
    finally:
        placing.remove_placement_group(group)


def _ray() -> Any:  # noqa: ANN401  # a module
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UsageError(
            "--on ray needs Ray, which is not installed", hint="pip install 'agentload[ray]'"
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: BaseException) -> str:
    return [type(error).__name__, *str(error).strip().splitlines()][-1]
