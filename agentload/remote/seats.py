"""Give the nodes that a study is played from: processes of this machine, or nodes of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from agentload.errors import UsageError
from agentload.layout import division
from agentload.live.look import cores
from agentload.live.workers.node import NodeProcess, Seat
from agentload.model.plan import Plan
from agentload.remote import cluster
from agentload.study.kinds import Replay

HERE: Final = "here"


def check(study: Replay) -> None:
    """Raise UsageError if `--on` names no such place, or a study needs what nodes cannot do."""
    if study.on is None:
        return
    if study.on != HERE and study.on.partition(":")[0] != cluster.NAME:
        raise UsageError(
            f"--on is here, ray or ray:ADDRESS, got '{study.on}'",
            hint="--on here --nodes 2, or --on ray:10.0.0.1:6379",
        )
    if study.keep_raw is not None:
        raise UsageError(
            "--keep-raw keeps bytes where calls are made, which is on the nodes",
            hint="leave out --keep-raw, or --on",
        )


def check_division(study: Replay, plan: Plan) -> None:
    """Raise PlanError if a plan cannot be divided over the nodes that a study asks for."""
    if (count := nodes_of(study)) is not None:
        division.check(plan, count)


def nodes_of(study: Replay) -> int | None:
    """Return how many nodes play a study; None where none do, or all that a cluster has."""
    if study.on is None:
        return None
    if study.on == HERE:
        return count_here(study.nodes)
    return study.nodes


def count_here(nodes: int | None) -> int:
    """Return how many nodes this machine is: as many as asked for, or one for each core."""
    return nodes or len(cores())


def seats(
    on: str, *, nodes: int | None, resume: str
) -> AbstractAsyncContextManager[Sequence[Seat]]:
    """Give *nodes* nodes, or as many as there are; *resume* is the hint if one is lost."""
    if on == HERE:
        return _processes(count_here(nodes))
    return cluster.actors(on, nodes=nodes, resume=resume)


@asynccontextmanager
async def _processes(count: int) -> AsyncIterator[tuple[NodeProcess, ...]]:
    found = tuple(map(NodeProcess, range(1, count + 1)))
    try:
        yield found
    finally:
        await asyncio.gather(*(each.end() for each in found), return_exceptions=True)
