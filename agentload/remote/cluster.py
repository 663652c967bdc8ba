"""Use the nodes of a Ray cluster: one actor on each, with messages as method calls.

Ray starts the actors, each on a node of its own, carries messages and notices nodes that are
gone. Nothing is repeated: a call of a run that was made twice would be measured twice.
"""

import asyncio
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from agentload.errors import LaunchError, UsageError
from agentload.live.workers.messages import Order, Report
from agentload.live.workers.node import NodeProcess
from agentload.live.workers.process import Work

NAME: Final = "ray"
CONNECT_S: Final = 10.0
PLACING_S: Final = 60.0
ANSWER_S: Final = 60.0
START_S: Final = 300.0
"""Long, as an actor first imports the package on a node that has not read it yet."""


class Actor:
    """Run a node on a cluster, through its Ray actor."""

    # Ray creates its types at run time.
    def __init__(self, number: int, actor: Any, resume: str) -> None:  # noqa: ANN401
        self.number = number
        self._actor = actor
        self._resume = resume

    async def start(self, work: Work) -> None:
        """Start the node's process and give it its work."""
        await self._answer(self._actor.start.remote(work), within_s=START_S)

    def say(self, order: Order) -> None:
        """Give the process an order; a lost node shows when its reports are waited for."""
        self._actor.say.remote(order)

    async def reports(self) -> tuple[Report, ...]:
        """Return what the process has reported since the last call; wait some seconds for it."""
        said: tuple[Report, ...] = await self._answer(self._actor.reports.remote())
        return said

    async def clock_ns(self) -> int:
        """Read the node's monotonic clock."""
        at_ns: int = await self._answer(self._actor.clock_ns.remote())
        return at_ns

    async def end(self) -> None:
        """End the node's process."""
        await self._answer(self._actor.end.remote())

    # `answer` is a Ray object, see `__init__`
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
async def actors(on: str, *, nodes: int | None, resume: str) -> AsyncIterator[tuple[Actor, ...]]:
    """Give an actor on each of *nodes* nodes, or on all; *resume* is the hint if one is lost.

    Raises LaunchError where the cluster has fewer nodes, or a node is lost.
    """
    with join_cluster(on) as ray:
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
def join_cluster(on: str) -> Iterator[Any]:
    """Connect to a Ray cluster and give the ray module; raise LaunchError if there is none."""
    ray = _ray()
    address = on.removeprefix(NAME).removeprefix(":") or os.environ.get("RAY_ADDRESS") or "auto"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host:  # Ray itself would take minutes to find out that nobody listens
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
async def _placed(
    ray: Any,  # noqa: ANN401  # a module
    count: int,
    resume: str,
) -> AsyncIterator[tuple[Actor, ...]]:
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
        made = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(NodeProcess)
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
