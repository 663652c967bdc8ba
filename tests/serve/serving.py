"""Serve an arm inside a test's own event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentload.model.profile import ArmProfile
from agentload.serve.server import Options, Running, serve


@asynccontextmanager
async def served(arm: ArmProfile, options: Options | None = None) -> AsyncIterator[Running]:
    until = asyncio.Event()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(arm, options or Options(), until=until, ready=ready.set_result))
        try:
            yield await ready
        finally:
            until.set()
