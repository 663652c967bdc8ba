"""Run the schedule in the foreground, for containers.

Each firing is a process of its own, as cron would start it.
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from agentload.watch.job import Job
from agentload.watch.schedule import CORRECTED_NS, firings
from agentload.watch.schedulers import Machine

SECOND: Final = 1_000_000_000
LOOK_S: Final = 30.0  # a clock that was set, or a machine that slept, is noticed within this time


async def serve(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    say: Callable[[str], None],
    now: Callable[[], int] = time.time_ns,
    look_s: float = LOOK_S,
) -> None:
    """Execute jobs as they fall due, until SIGTERM or SIGINT.

    Executions that run then get SIGTERM, and are waited for.
    """
    stop = asyncio.Event()
    running: set[Process] = set()

    def halt() -> None:
        stop.set()
        for process in running:
            # Process.terminate() would reap a child that just ended, and lose its exit code.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)

    async def fires(job: Job, last_ns: int) -> bool:
        """Wait for the next firing by the wall clock, also when that is set meanwhile.

        Returns False when asked to stop before.
        """
        while not stop.is_set():
            if now() < last_ns - CORRECTED_NS:
                last_ns = now()
            left_s = (next(firings(job.schedule, last_ns)) - now()) / SECOND
            if left_s <= 0:
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(left_s, look_s))
        return False

    async def keep(job: Job) -> None:
        last_ns = now()
        async with asyncio.TaskGroup() as executions:
            while await fires(job, last_ns):
                # Firings that were slept through are counted by the execution itself.
                last_ns = now()
                executions.create_task(_execute(machine.command(job), job.name, running, say))

    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, halt)
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            due = datetime.fromtimestamp(next(firings(job.schedule, now())) / SECOND, UTC)
            say(f"{job.name}: next at {due:%Y-%m-%d %H:%M} UTC")
            tasks.create_task(keep(job))


async def _execute(
    command: tuple[str, ...], name: str, running: set[Process], say: Callable[[str], None]
) -> None:
    try:
        # A group of its own: Ctrl-C in the terminal reaches us alone, and we pass it on once.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stdout,
            stderr=sys.stderr,
            process_group=0,
        )
    # an upgrade may be replacing the program: the next execution counts this firing as missed
    except OSError as error:
        say(f"{name}: {command[0]}: {error.strerror}")
        return
    running.add(process)
    try:
        say(f"{name}: exit code {await process.wait()}")
    finally:
        running.discard(process)
