from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agentload.dispatch.row import row
from agentload.live import health as health_module
from agentload.live.alarm import Waker
from agentload.live.health import (
    SECOND,
    Health,
    Monitor,
    interruption,
    more_workers,
    together,
    void_reason,
)
from agentload.live.wire import WireFacts
from agentload.model.commands import Call, Limits, Outcome, Send
from agentload.model.rows import CallRow


@pytest.mark.parametrize(
    ("lag", "stall", "share", "says"),
    [
        (1.0, 20.0, 0.04, None),
        (None, 0.0, None, None),
        (9.0, 20.0, 0.1, "late"),
        (1.0, 900.0, 0.1, "stood still"),
        (1.0, 20.0, 0.4, "in one read"),
    ],
)
def test_a_leg_is_void_for_a_named_reason(
    lag: float | None, stall: float, share: float | None, says: str | None
) -> None:
    reason = void_reason(send_lag_p99_ms=lag, loop_stall_max_ms=stall, coalesced_share=share)
    assert reason is None if says is None else reason is not None and says in reason


def test_a_lag_just_above_its_limit_does_not_read_as_the_limit() -> None:
    reason = void_reason(send_lag_p99_ms=5.004, loop_stall_max_ms=0.0, coalesced_share=None)
    assert reason is not None
    assert reason.startswith("requests left 5.004 ms late (p99; limit 5)")


@pytest.mark.parametrize(
    ("peak", "dispatcher", "workers", "cores", "wanted"),
    [
        (0.9, 0.0, 1, 8, 2),
        (0.9, 0.3, 2, 8, 4),
        (0.9, 0.3, 4, 6, 6),
        (0.5, 0.0, 1, 8, None),  # no process is short of CPU
        (0.9, 0.9, 2, 8, None),  # the dispatcher is, and stays alone
        (0.9, 0.0, 1, 1, None),  # the machine is
    ],
)
def test_workers_are_named_where_one_process_is_short_of_cpu_and_the_machine_is_not(
    peak: float, dispatcher: float, workers: int, cores: int, wanted: int | None
) -> None:
    assert more_workers(peak, own_share=dispatcher, workers=workers, cores=cores) == wanted


@pytest.mark.parametrize(
    ("lag", "stall", "share"), [(9.0, 0.0, None), (None, 900.0, None), (None, 0.0, 0.4)]
)
def test_workers_are_a_remedy_for_load_and_not_for_a_machine_that_stands_still(
    lag: float | None, stall: float, share: float | None
) -> None:
    reason = void_reason(
        send_lag_p99_ms=lag, loop_stall_max_ms=stall, coalesced_share=share, more_workers=4
    )
    assert reason is not None
    assert ("--workers 4" in reason) is (stall == 0)


def test_a_leg_whose_stamps_were_dropped_is_void() -> None:
    monitor = Monitor()
    monitor.ended(ended(0), chunks=100)
    assert monitor.health(facts(unstamped_reads=1)).void is None
    void = monitor.health(facts(unstamped_reads=1, unstamped_sends=1)).void
    assert void is not None
    assert "gave 2.0% of reads no stamp" in void


def test_what_workers_say_is_merged_with_what_the_dispatcher_saw_of_all_calls() -> None:
    one, two, dispatcher = Monitor(), Monitor(), Monitor()
    for monitor, lags_ms in ((one, (1, 1)), (two, (3,)), (dispatcher, (1, 1, 3))):
        for lag_ms in lags_ms:
            monitor.ended(ended(lag_ms), chunks=10)
    healths = (
        replace(one.health(facts(unstamped_reads=2)), loop_stall_max_ms=40.0, cpu_peak_share=0.9),
        replace(two.health(facts(clock_steps=1)), cpu_share=0.5),
    )
    merged = dispatcher.health(workers=healths)
    assert (merged.calls, merged.send_lag_p50_ms, merged.loop_stall_max_ms) == (3, 1.0, 40.0)
    assert (merged.cpu_peak_share, merged.clock_steps, merged.dropped_stamps, merged.workers) == (
        0.9,
        1,
        2,
        healths,
    )
    assert merged.cpu_share >= 0.5


def ended(lag_ms: int) -> CallRow:
    made = Call(session="s", turn=0, workload="chat", context=(), context_tokens=0, output=1)
    send = Send(
        request_id="r",
        call=made,
        attempt=0,
        retry_of=None,
        arm="a",
        block=0,
        pair=0,
        due_ns=0,
        released_ns=0,
        salt="s",
        limits=Limits(),
    )
    return row(
        send,
        Outcome(status="ok", sent_ns=lag_ms * 1_000_000, stamp_source="kernel"),
        run_id="r",
        leg=1,
    )


def facts(*, unstamped_reads: int = 0, unstamped_sends: int = 0, clock_steps: int = 0) -> WireFacts:
    return WireFacts(
        unstamped_reads=unstamped_reads,
        unstamped_sends=unstamped_sends,
        clock_steps=clock_steps,
        largest_step_ns=0,
    )


def test_health_says_who_read_the_sockets_and_of_several_processes_the_slower_way() -> None:
    thread, interpreter = (
        Monitor().health(replace(facts(), read_path=path)) for path in ("thread", "interpreter")
    )
    assert (thread.read_path, interpreter.read_path) == ("thread", "interpreter")
    assert Monitor().health().read_path is None
    assert Monitor().health(workers=(thread, thread)).read_path == "thread"
    assert Monitor().health(workers=(thread, interpreter)).read_path == "interpreter"
    assert together((thread, interpreter)).read_path == "interpreter"


def test_a_stepped_clock_voids_a_leg() -> None:
    reason = void_reason(
        send_lag_p99_ms=1.0, loop_stall_max_ms=1.0, coalesced_share=0.0, clock_steps=2
    )
    assert reason is not None
    assert "stepped 2 times" in reason


class Sleeper:
    """Say how long the machine slept."""

    def __init__(self) -> None:
        self.asleep_ns = 5 * SECOND

    def __call__(self) -> int:
        return self.asleep_ns


def test_a_step_of_the_wall_clock_interrupts_its_block_and_no_other() -> None:
    monitor = Monitor()
    assert monitor.settle(facts()) is None
    stepped = facts(clock_steps=1, unstamped_reads=40)
    assert monitor.settle(stepped) == "the wall clock was stepped during the block"
    assert monitor.settle(stepped) is None
    health = monitor.health(stepped)
    assert (health.void, health.clock_steps, health.dropped_stamps) == (None, 0, 0)


def test_a_step_that_no_settled_block_had_voids_the_part() -> None:
    monitor = Monitor()
    monitor.settle(facts())
    health = monitor.health(facts(clock_steps=2))
    assert (health.interruption, health.clock_steps) == (None, 2)
    assert health.void is not None


def test_a_machine_that_slept_is_named_as_such_although_its_wall_clock_is_ahead_by_as_much() -> (
    None
):
    sleeper = Sleeper()
    monitor = Monitor(asleep_ns=sleeper)
    sleeper.asleep_ns += 3_600 * SECOND
    assert monitor.settle(facts(clock_steps=1)) == "this machine slept for 3600 s during the block"
    assert monitor.settle(facts(clock_steps=1)) is None


def test_a_sleep_or_a_step_between_two_blocks_interrupts_neither() -> None:
    sleeper = Sleeper()
    monitor = Monitor(asleep_ns=sleeper)
    assert monitor.settle(facts()) is None
    sleeper.asleep_ns += 3_600 * SECOND
    monitor.open_block(facts(clock_steps=1))
    assert monitor.settle(facts(clock_steps=1)) is None
    assert monitor.health(facts(clock_steps=1)).void is None
    sleeper.asleep_ns += 60 * SECOND
    assert monitor.settle(facts(clock_steps=1)) == "this machine slept for 60 s during the block"


def test_what_interrupted_a_worker_interrupts_the_block() -> None:
    worker = Monitor()
    worker.settle(facts(clock_steps=1))
    monitor = Monitor()
    why = monitor.settle(workers=[Monitor().health(), worker.health(facts(clock_steps=1))])
    assert why == "the wall clock was stepped during the block"
    assert monitor.health().interruption == why


@pytest.mark.parametrize(
    ("asleep_s", "stall_s", "steps", "why"),
    [
        (0.0, 0.3, 0, None),
        (0.0, 12.0, 0, "this process was suspended for 12 s during the block"),
        (60.0, 60.0, 1, "this machine slept for 60 s during the block"),
        (0.0, 12.0, 1, "this process was suspended for 12 s during the block"),
    ],
)
def test_an_interruption_is_called_by_what_did_it(
    asleep_s: float, stall_s: float, steps: int, why: str | None
) -> None:
    assert interruption(asleep_s=asleep_s, stall_s=stall_s, clock_steps=steps) == why


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


async def test_a_stall_while_nothing_is_timed_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    playing, now_ns = True, 10 * SECOND
    clock = SimpleNamespace(monotonic_ns=lambda: now_ns, process_time_ns=lambda: 0)
    monkeypatch.setattr(health_module, "time", clock)
    monitor = Monitor(is_timing=lambda: playing, asleep_ns=lambda: 0)
    beat = asyncio.create_task(monitor.beat())
    await asyncio.sleep(0.03)
    playing = False
    now_ns += 300_000_000  # the stall that is not to be noticed
    await asyncio.sleep(0.03)
    playing = True
    await asyncio.sleep(0.03)
    beat.cancel()
    assert monitor.health().loop_stall_max_ms == 0


@pytest.mark.parametrize(
    ("dialled_ms", "opened_ms", "lag_ms"),
    [
        (None, None, 50),  # a connection was there
        (1, 48, 3),  # opening one took all but 3 ms
        (40, 48, 42),  # we were late to begin with it
        (-2, 48, 2),  # it was begun before the call's instant
        (-2, -1, 50),  # and ready by then
    ],
)
def test_only_the_time_that_opening_a_connection_took_is_no_lag_of_ours(
    dialled_ms: int | None, opened_ms: int | None, lag_ms: int
) -> None:
    monitor = Monitor()
    dialled_ns = None if dialled_ms is None else dialled_ms * 1_000_000
    late = replace(
        ended(50),
        dialled_ns=dialled_ns,
        opened_ns=None if opened_ms is None else opened_ms * 1_000_000,
    )
    monitor.ended(late, chunks=0)
    assert monitor.health().send_lag_p99_ms == lag_ms


async def test_an_alarm_rings_once_at_its_instant_and_can_be_moved() -> None:
    rings: list[int] = []
    alarm = Waker(lambda: rings.append(time.monotonic_ns()))
    start = time.monotonic_ns()

    async def rung(times: int) -> None:
        async with asyncio.timeout(60):
            while len(rings) < times:  # noqa: ASYNC110  # an alarm calls a function
                await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert len(rings) == times

    alarm.set(start + 1_000 * SECOND)  # an alarm that is not moved rings too late for this test
    alarm.set(start + 20_000_000)
    await rung(1)
    assert rings[0] >= start + 20_000_000
    alarm.set(start)  # in the past: at once
    await rung(2)
    alarm.close()


def test_parts_that_were_played_at_the_same_time_are_as_good_as_the_worst() -> None:
    parts = [
        Health(
            calls=calls,
            send_lag_p50_ms=lag,
            send_lag_p99_ms=2 * lag,
            loop_stall_max_ms=lag,
            coalesced_share=None,
            cpu_share=0.25,
            stamp_sources=("kernel",),
            dropped_share=dropped,
            void=void,
        )
        for calls, lag, dropped, void in ((10, 1.0, 0.02, None), (20, 0.5, 0.0, "late"))
    ]
    found = together(parts)
    assert found.dropped_share == 0.02
    assert (found.calls, found.send_lag_p50_ms, found.send_lag_p99_ms, found.loop_stall_max_ms) == (
        30,
        1.0,
        2.0,
        1.0,
    )
    assert (found.cpu_share, found.void, found.stamp_sources, found.workers) == (
        0.5,
        "late",
        ("kernel",),
        tuple(parts),
    )
