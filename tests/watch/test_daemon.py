"""The daemon executes each job when it falls due, once
after a sleep, and ends when told, its executions with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.watch.daemon import SECOND, serve
from agentload.watch.job import Job
from agentload.watch.schedule import Schedule, unanswered_firings
from agentload.watch.schedulers import Machine

pytestmark = pytest.mark.loopback

STUDY = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="prod=http://127.0.0.1:1/v1"))
JOBS = tuple(
    Job(name=name, study=STUDY, schedule=Schedule(cron=cron))
    for name, cron in (("nightly", "0 2 * * *"), ("hourly", "0 * * * *"))
)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


@dataclass(slots=True)
class Clock:
    """A wall clock that runs as the real one does, until it is moved."""

    start_ns: int
    began_ns: int = field(default_factory=time.monotonic_ns)

    def __call__(self) -> int:
        return self.start_ns + time.monotonic_ns() - self.began_ns


def scene(folder: Path, script: str) -> Machine:
    """Return a machine whose agentload is a script."""
    program = folder / "agentload"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Machine(
        program=program,
        jobs_file=folder / "watch.yaml",
        database=folder / "x.duckdb",
        local_zone="UTC",
        path="/bin",
    )


def served(
    place: Machine, clock: Clock, acts: Iterator[bool], said: list[str] | None = None
) -> list[str]:
    """Serve until *acts* is through, which is asked
    every few ms whether it goes on; then send SIGTERM. What is *said* can be looked at meanwhile.
    """
    said = [] if said is None else said

    async def act() -> None:
        until_s = time.monotonic() + 60
        with suppress(StopIteration):
            while time.monotonic() < until_s:
                next(acts)
                await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(JOBS, place, say=said.append, now=clock, look_s=0.01))
            await asyncio.sleep(
                0.01
            )  # the handler stands: the signal ends the daemon, not the tests
            tasks.create_task(act())
            await serving

    asyncio.run(asyncio.wait_for(both(), 120))
    return said


def test_each_job_is_executed_when_it_falls_due(tmp_path: Path) -> None:
    clock = Clock(at("2026-11-20T00:59:59") + 9 * SECOND // 10)
    called = tmp_path / "called"

    def acts() -> Iterator[bool]:
        while not called.exists():
            yield True
        clock.start_ns = at("2026-11-20T01:59:59") + 9 * SECOND // 10
        clock.began_ns = time.monotonic_ns()
        while len(called.read_text().splitlines()) < 3:
            yield True

    said = served(scene(tmp_path, f'echo "$3" >>{called}; exit 3'), clock, acts())
    assert said[:2] == [
        "nightly: next at 2026-11-20 02:00 UTC",
        "hourly: next at 2026-11-20 01:00 UTC",
    ]
    assert sorted(called.read_text().split()) == ["hourly", "hourly", "nightly"]
    assert sorted(said[2:]) == [
        "hourly: exit code 3",
        "hourly: exit code 3",
        "nightly: exit code 3",
    ]


def test_a_machine_that_slept_through_three_firings_executes_once_and_that_one_counts_them(
    tmp_path: Path,
) -> None:
    clock = Clock(at("2026-11-16T02:00:30"))
    called = tmp_path / "called"

    def acts() -> Iterator[bool]:
        yield True
        clock.start_ns = at("2026-11-20T09:30:00")
        clock.began_ns = time.monotonic_ns()
        until_s = time.monotonic() + 0.2
        while (
            time.monotonic() < until_s
            or not called.exists()
            or called.read_text().count("nightly") < 1
        ):
            yield True

    served(scene(tmp_path, f'echo "$3" >>{called}'), clock, acts())
    assert sorted(called.read_text().split()) == ["hourly", "nightly"]
    found = unanswered_firings(JOBS[0].schedule, last_ns=at("2026-11-16T02:00:07"), now_ns=clock())
    assert found == tuple(
        at(f"2026-11-{day}T02:00:00") for day in (17, 18, 19, 20)
    )  # three missed, and the one that it answers


def test_a_program_that_is_replaced_just_now_costs_one_firing_and_not_the_daemon(
    tmp_path: Path,
) -> None:
    clock = Clock(at("2026-11-20T00:59:59") + 9 * SECOND // 10)
    called = tmp_path / "called"
    place = scene(tmp_path, "")
    place.program.unlink()
    said: list[str] = []

    def acts() -> Iterator[bool]:
        while len(said) < 3:
            yield True
        scene(tmp_path, f'echo "$3" >>{called}')
        clock.start_ns = at("2026-11-20T01:59:59") + 9 * SECOND // 10
        clock.began_ns = time.monotonic_ns()
        while not called.exists() or len(called.read_text().splitlines()) < 2:
            yield True

    served(place, clock, acts(), said)
    assert said[2] == f"hourly: {place.program}: No such file or directory"
    assert sorted(said[3:]) == ["hourly: exit code 0", "nightly: exit code 0"]


def test_sigterm_is_passed_on_and_waited_for(tmp_path: Path) -> None:
    clock = Clock(at("2026-11-20T00:59:59") + 9 * SECOND // 10)
    started, ended = tmp_path / "started", tmp_path / "ended"

    def acts() -> Iterator[bool]:
        while not started.exists():
            yield True

    script = (
        f"trap 'sleep 0.1; touch {ended}; exit 1' TERM; touch {started}; "
        "i=0; while [ $i -lt 500 ]; do i=$((i+1)); sleep 0.2; done"  # 100 s
    )
    said = served(scene(tmp_path, script), clock, acts())
    assert ended.exists()
    assert said[2:] == ["hourly: exit code 1"]


def test_a_clock_that_was_years_ahead_holds_up_nothing_once_it_is_put_right(tmp_path: Path) -> None:
    clock = Clock(at("2036-11-16T02:00:30"))
    called = tmp_path / "called"

    def acts() -> Iterator[bool]:
        yield True
        clock.start_ns = at("2026-11-20T01:59:59") + 9 * SECOND // 10
        clock.began_ns = time.monotonic_ns()
        while not called.exists() or len(called.read_text().splitlines()) < 2:
            yield True

    served(scene(tmp_path, f'echo "$3" >>{called}'), clock, acts())
    assert sorted(called.read_text().split()) == ["hourly", "nightly"]
