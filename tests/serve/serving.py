"""Serve an arm inside a test's own event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentload.model.profile import ArmProfile
from agentload.serve.server import ServedArm, ServerOptions, serve


@asynccontextmanager
async def served(arm: ArmProfile, options: ServerOptions | None = None) -> AsyncIterator[ServedArm]:
    until = asyncio.Event()
    ready: asyncio.Future[ServedArm] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            serve(arm, options or ServerOptions(), until=until, ready=ready.set_result)
        )
        try:
            yield await ready
        finally:
            until.set()
