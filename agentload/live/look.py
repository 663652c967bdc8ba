"""Look at this machine for a second: how late timers fire, and how much others use its cores."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agentload.model.client import ClientLook
from agentload.model.metrics import MS, p99

SWITCH: Final = "AGENTLOAD_CLIENT_CHECK"
"""Environment variable; `0` switches the look off."""
TIMERS_S: Final = 0.6
TIMER_S: Final = 0.005
SPINS_S: Final = 0.4
MOST_CORES: Final = 8
"""The most cores looked at: with more, each spin would be shorter than a time slice."""
STAT: Final = Path("/proc/stat")
STEAL: Final = 7
"""Index in /proc/stat: user nice system idle iowait irq softirq steal."""


def look() -> ClientLook | None:
    """Return what was measured of this machine; None where the look is switched off."""
    if os.environ.get(SWITCH) == "0":
        return None
    before = _ticks()
    lates_ns = asyncio.run(_timers())
    taken = _taken()
    return ClientLook(
        cores=len(cores()),
        timer_p50_ms=sorted(lates_ns)[len(lates_ns) // 2] / MS,
        timer_p99_ms=(p99(lates_ns) or 0) / MS,
        taken_share=sum(taken) / len(taken),
        steal_share=_stolen(before, _ticks()),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def cores() -> tuple[int, ...]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


async def _timers() -> list[int]:
    """Return how late each of a series of timers fired, in ns."""
    late: list[int] = []
    until_ns = time.monotonic_ns() + round(TIMERS_S * 1e9)
    while time.monotonic_ns() < until_ns:
        due_ns = time.monotonic_ns() + round(TIMER_S * 1e9)
        await asyncio.sleep(TIMER_S)
        late.append(max(0, time.monotonic_ns() - due_ns))
    return late


def _taken() -> list[float]:
    """Return for each of some cores the share of a short spin that other processes took."""
    looked = cores()[:MOST_CORES]
    # A thread of its own, as a spin changes the cores on which its thread may run
    with ThreadPoolExecutor(1) as thread:
        return [thread.submit(_spun, core, SPINS_S / len(looked)).result() for core in looked]


def _spun(core: int, seconds: float) -> float:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    began_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
    while (wall_ns := time.monotonic_ns() - began_ns) < seconds * 1e9:
        pass
    return max(0.0, 1 - (time.thread_time_ns() - cpu_ns) / wall_ns)


def _ticks() -> tuple[int, ...]:
    """Return the machine's CPU ticks by kind, from /proc/stat; empty where there is none."""
    if not STAT.is_file():
        return ()
    return tuple(int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:])


def _stolen(before: tuple[int, ...], after: tuple[int, ...]) -> float | None:
    spent = [now - then for then, now in zip(before, after, strict=False)]
    if len(spent) > STEAL and sum(spent) > 0:
        return spent[STEAL] / sum(spent)
    return None
