"""Choose who carries calls out: this process, or workers that it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentload.live.runner import Caller
from agentload.live.station import Job, station
from agentload.live.workers.pool import Pool
from agentload.model.rows import Row


@asynccontextmanager
async def calling(job: Job, write: Callable[[Row], None], *, journals: Sequence[Path] = ()) -> AsyncIterator[Caller]:
    """Give a caller that writes its rows through *write*; with *journals* one worker for each, which writes its rows there.

    Raises LaunchError, within a group, when a worker is lost.
    """
    if not journals:
        async with station(job, write) as recorder:
            yield recorder
        return
    async with Pool(job, journals=journals) as pool, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(pool.watch())
        yield pool
        watching.cancel()
