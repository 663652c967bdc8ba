from __future__ import annotations

import asyncio
import time

import pytest

from agentload.live.alarm import Alarm
from agentload.live.health import Monitor, void_reason


@pytest.mark.parametrize(
    ("lag", "stall", "share", "says"),
    [
        (1.0, 20.0, 0.1, None),
        (None, 0.0, None, None),
        (9.0, 20.0, 0.1, "late"),
        (1.0, 900.0, 0.1, "stood still"),
        (1.0, 20.0, 0.4, "in one read"),
    ],
)
def test_a_leg_is_void_for_a_named_reason(lag: float | None, stall: float, share: float | None, says: str | None) -> None:
    reason = void_reason(send_lag_p99_ms=lag, loop_stall_max_ms=stall, coalesced_share=share)
    assert reason is None if says is None else reason is not None and says in reason


def test_a_stepped_clock_voids_a_leg() -> None:
    reason = void_reason(send_lag_p99_ms=1.0, loop_stall_max_ms=1.0, coalesced_share=0.0, clock_steps=2)
    assert reason is not None
    assert "stepped 2 times" in reason


async def test_a_stall_of_the_loop_is_noticed() -> None:
    monitor = Monitor()
    beat = asyncio.create_task(monitor.beat())
    await asyncio.sleep(0.05)
    time.sleep(0.3)  # noqa: ASYNC251  # the stall that is to be noticed
    await asyncio.sleep(0.05)
    beat.cancel()
    health = monitor.health()
    assert health.loop_stall_max_ms > 200
    assert health.void is not None
    assert "stood still" in health.void


async def test_a_stall_while_nothing_is_timed_is_no_stall() -> None:
    monitor = Monitor()
    beat = asyncio.create_task(monitor.beat())
    await asyncio.sleep(0.03)
    with monitor.unwatched():
        time.sleep(0.3)  # noqa: ASYNC251  # the stall that is not to be noticed
        await asyncio.sleep(0.03)
    beat.cancel()
    assert monitor.health().loop_stall_max_ms < 200


async def test_an_alarm_rings_once_at_its_instant_and_can_be_moved() -> None:
    rings: list[int] = []
    alarm = Alarm(lambda: rings.append(time.monotonic_ns()))
    start = time.monotonic_ns()
    alarm.set(start + 500_000_000)
    alarm.set(start + 20_000_000)
    await asyncio.sleep(0.08)
    assert len(rings) == 1
    assert rings[0] >= start + 20_000_000
    alarm.set(start)  # in the past: at once
    await asyncio.sleep(0.02)
    assert len(rings) == 2
    alarm.close()
