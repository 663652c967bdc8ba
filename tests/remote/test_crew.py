from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.errors import AgentloadError, LaunchError
from agentload.live.workers.messages import Go, Order
from agentload.live.workers.node import NodeProcess
from agentload.live.workers.process import Work
from agentload.model.plan import ClosedLoop, Load
from agentload.remote.crew import PINGS, Reading, drift
from agentload.remote.player import PlayShare
from tests.remote.fleet import Fleet, alone, facts, order, planned, served

pytestmark = pytest.mark.loopback
BOUND_S = 60


async def begun(fleet: Fleet) -> None:
    """Wait until the nodes are in the middle of their first block."""
    async with asyncio.timeout(BOUND_S):
        for each in fleet.nodes:
            assert isinstance(each, Told)
            await each.went.wait()
    await asyncio.sleep(1.5)


class Told(NodeProcess):
    """A node of which it is known that it may go."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.went = asyncio.Event()

    def say(self, order: Order) -> None:
        super().say(order)
        if isinstance(order, Go):
            self.went.set()


async def test_nodes_make_the_calls_that_one_dispatcher_makes_in_the_same_order_within_sessions(
    tmp_path: Path,
) -> None:
    made = planned(pairs=2)
    async with served() as urls:
        expected = await alone(made, urls)
        fleet = Fleet(made, urls, [NodeProcess(number) for number in (1, 2, 3)], folder=tmp_path)
        health = await fleet.play()
    assert facts(fleet.calls) == facts(expected)
    assert len(fleet.calls) == len(expected)
    assert order(fleet.calls) == order(expected)
    assert health.calls == len(expected)
    assert [each.settle.round for each in fleet.settled] == [0, 1, 2, 3]
    assert not [each.fault for each in fleet.settled if each.again]


@pytest.mark.slow
@pytest.mark.alone
async def test_a_closed_loop_is_divided_and_its_sessions_are_all_played() -> None:
    made = planned(load=Load(arrivals=ClosedLoop(sessions=4), max_in_flight=4))
    async with served() as urls:
        fleet = Fleet(made, urls, [NodeProcess(1), NodeProcess(2)])
        await fleet.play(workers=2)
        expected = await alone(made, urls)
    assert facts(fleet.calls) == facts(expected)
    in_flight = max(
        sum(
            other.released_ns <= each.released_ns < (other.done_ns or 0)
            for other in fleet.calls
            if other.arm == each.arm
        )
        for each in fleet.calls
    )
    assert in_flight <= 4


@pytest.mark.slow
async def test_a_process_that_dies_ends_the_run_with_its_block_invalid_and_what_the_others_measured_kept() -> (
    None
):
    made = planned(wait_s=2.0)
    async with served() as urls:
        fleet = Fleet(made, urls, [Told(1), Told(2)])

        async def killed() -> None:
            await begun(fleet)
            process = fleet.nodes[1].process
            assert process is not None
            process.kill()

        with pytest.raises(
            LaunchError, match=r"node 2 \(.*\) is lost: its process was killed by signal 9"
        ) as caught:
            await asyncio.gather(fleet.play(), killed())
    assert caught.value.hint == "agentload replay … --resume crew"
    (settled,) = fleet.settled
    assert settled.fault is not None
    assert settled.again
    assert [end.is_whole for end in settled.ends] == [False]
    assert 0 < len(fleet.calls) < 33
    assert len({row.request_id for row in fleet.calls}) == len(fleet.calls)


@pytest.mark.slow
@pytest.mark.alone
async def test_a_stop_lets_what_is_in_flight_come_to_its_end_on_every_node() -> None:
    made = planned(wait_s=1.5, pairs=2)
    async with served() as urls:
        fleet = Fleet(made, urls, [Told(1), Told(2)])

        async def stopped() -> None:
            await begun(fleet)
            assert fleet.crew is not None
            fleet.crew.stop()

        await asyncio.gather(fleet.play(), stopped())
    assert [end.is_whole for end in fleet.settled[-1].ends] == [False]
    assert {row.status for row in fleet.calls} == {"ok"}
    assert len(fleet.settled) < 4


class Skewed(NodeProcess):
    """A node whose clock is an hour ahead of ours, and is set ahead once more while it plays."""

    skew_ns = 3_600_000_000_000
    asked = 0

    async def clock_ns(self) -> int:
        self.asked += 1
        moved_ns = 80_000_000 if self.asked > PINGS else 0
        return await super().clock_ns() + self.skew_ns + moved_ns

    def say(self, order: Order) -> None:
        if isinstance(order, Go):
            order = replace(order, at_ns=order.at_ns - self.skew_ns)
        super().say(order)


@pytest.mark.slow
@pytest.mark.alone
async def test_a_clock_that_moves_within_a_block_has_it_played_again() -> None:
    made = planned()
    async with served() as urls:
        fleet = Fleet(made, urls, [NodeProcess(1), Skewed(2)])
        await fleet.play()
    first, *_ = fleet.settled
    assert first.again
    assert first.fault is not None
    assert first.fault.endswith("moved by 80 ms against ours during the block")
    assert [each.again for each in fleet.settled] == [True, *[False] * (len(fleet.settled) - 1)]
    assert {end.play.salt for each in fleet.settled for end in each.ends} == {"crew/0", "crew/0~1"}


@pytest.mark.slow
@pytest.mark.alone
async def test_a_process_that_stands_still_makes_its_block_invalid_and_is_named() -> None:
    made = planned(wait_s=1.5)
    async with served() as urls:
        fleet = Fleet(made, urls, [Told(1), Told(2)])

        async def held() -> None:
            await begun(fleet)
            process = fleet.nodes[1].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.5)
            process.send_signal(signal.SIGCONT)

        health, _ = await asyncio.gather(fleet.play(), held())
    doubts = [each.fault for each in fleet.settled if each.fault is not None]
    assert any("node 2" in each for each in doubts)
    assert not any(each.again for each in fleet.settled)
    assert health.void is not None
    assert health.loop_stall_max_ms > 1_000


async def test_a_share_that_is_not_the_one_that_was_sent_is_refused() -> None:
    made = planned()
    async with served() as urls:
        fleet = Fleet(made, urls, [NodeProcess(1), Garbled(2)])
        with pytest.raises(
            AgentloadError, match="node 2 got another share of the plan than was sent to it"
        ):
            await fleet.play()
    assert fleet.calls == []


class Garbled(NodeProcess):
    """A node to which another share comes than was sent."""

    async def start(self, work: Work) -> None:
        assert isinstance(work, PlayShare)
        await super().start(replace(work, name="0" * 64))


@pytest.mark.parametrize(
    ("moved_ns", "error_ns", "said_ns"),
    [(4_000_000, 0, None), (6_000_000, 0, 6_000_000), (-6_000_000, 1_000_000, None)],
)
def test_a_clock_may_move_by_what_its_readings_are_uncertain_by(
    moved_ns: int, error_ns: int, said_ns: int | None
) -> None:
    before = Reading(ahead_ns=1_000_000_000, error_ns=error_ns)
    assert drift(before, replace(before, ahead_ns=before.ahead_ns + moved_ns)) == said_ns
