"""Run the schedule in the foreground, for containers: each firing is a process of its own, as cron would start it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from agentload.watch.exports.parts import Place
from agentload.watch.job import Job
from agentload.watch.schedule import firings

SECOND: Final = 1_000_000_000
LOOK_S: Final = 30.0  # a clock that was set, or a machine that slept, is noticed within this time


async def serve(jobs: Iterable[Job], place: Place, *, say: Callable[[str], None]) -> None:
    """Execute jobs as they fall due, until SIGTERM or SIGINT; executions that run are told so, and waited for."""
    stop = asyncio.Event()
    running: set[Process] = set()

    def halt() -> None:
        stop.set()
        for process in running:
            with suppress(ProcessLookupError):
                process.terminate()

    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, halt)
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(_keep(job, place, stop, running, say))


async def _keep(job: Job, place: Place, stop: asyncio.Event, running: set[Process], say: Callable[[str], None]) -> None:
    last_ns = time.time_ns()
    async with asyncio.TaskGroup() as tasks:
        while await _reached(next(firings(job.schedule, last_ns)), stop):
            last_ns = time.time_ns()  # firings that were slept through are counted by the execution itself
            tasks.create_task(_execute(place.command(job), job.name, running, say))


async def _reached(due_ns: int, stop: asyncio.Event) -> bool:
    """Wait for an instant of the wall clock; False when asked to stop before."""
    while (left_s := (due_ns - time.time_ns()) / SECOND) > 0 and not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(left_s, LOOK_S))
    return not stop.is_set()


async def _execute(command: tuple[str, ...], name: str, running: set[Process], say: Callable[[str], None]) -> None:
    # A group of its own: Ctrl-C in the terminal reaches us alone, and we pass it on once.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stdout, stderr=sys.stderr, process_group=0
    )
    running.add(process)
    try:
        say(f"{name}: exit code {await process.wait()}")
    finally:
        running.discard(process)
