"""All that one process needs to make calls: sockets to every arm, prompts rendered ahead, rows written as calls end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.errors import AgentloadError
from agentload.live.caller import PromptCaller, Speech
from agentload.live.raw import RawLog, Which
from agentload.live.recorder import Recorder
from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.model.rows import Row
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import Tokenizer
from agentload.store.places import RAW

RENEW_S: Final = 300.0  # tokens that expire live for an hour, as a rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Keep the bytes of calls in this folder."""

    folder: Path
    which: Which


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every process of a leg that makes calls must know."""

    run_id: str
    leg: int
    seed: int
    targets: Callable[[], Iterable[Target]]
    """Makes them in the process that uses them, as keys of TLS do not travel; it can be pickled itself."""
    speech: Mapping[str, Speech]
    trace_seed: int
    block: int
    tokenizer: Tokenizer
    raw: Raw | None = None
    renews_keys: bool = False
    """Keys expire: make the targets anew from time to time."""


@asynccontextmanager
async def station(job: Job, write: Callable[[Row], None]) -> AsyncIterator[Recorder]:
    """Give a caller whose sockets are in this process."""
    renderer = Renderer(seed=job.trace_seed, block=job.block, tokenizer=job.tokenizer)
    async with AsyncExitStack() as stack:
        raw = None
        if job.raw is not None:
            # Named by the process: workers write theirs side by side.
            path = job.raw.folder / f"leg{job.leg:03}-{os.getpid()}{RAW}"
            raw = stack.enter_context(RawLog(path, which=job.raw.which))
        wire = await stack.enter_async_context(Wire(job.targets(), raw=raw))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        caller = PromptCaller(wire, job.speech, renderer, seed=job.seed)
        beside = [tasks.create_task(caller.cook())]
        if job.renews_keys:
            beside.append(tasks.create_task(_renewed(wire, job)))
        yield Recorder(caller, run_id=job.run_id, leg=job.leg, write=write)
        for task in beside:
            task.cancel()


async def _renewed(wire: Wire, job: Job) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with suppress(AgentloadError):  # the old key may still do; if not, calls say so
            wire.renew(await asyncio.to_thread(lambda: tuple(job.targets())))
