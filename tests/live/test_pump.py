import asyncio
import time
from dataclasses import dataclass, field

from agentload.live.pump import SHARE, SLICE, Pump

DELAY_S = 0.005


@dataclass
class Reads:
    """A backlog of numbers."""

    name: str
    left: int
    steps: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_behind(self) -> bool:
        return self.left > 0

    def step(self, limit: int) -> int:
        count = min(limit, self.left)
        self.left -= count
        self.steps.append((self.name, count))
        return count


async def test_backlogs_are_worked_off_in_slices_in_the_order_of_their_beginning() -> None:
    pump = Pump(delay_s=DELAY_S)
    steps: list[tuple[str, int]] = []
    for name, left in (("a", 3), ("b", SLICE + 5), ("c", 1)):
        pump.add(Reads(name, left, steps))
    await asyncio.sleep(0)
    assert steps == []
    await asyncio.sleep(3 * DELAY_S)
    assert steps == [("a", 3), ("b", SLICE - 3), ("b", 8), ("c", 1)]


async def test_what_arrives_while_a_backlog_waits_is_parsed_with_it() -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 1)
    pump.add(reads)
    await asyncio.sleep(0)
    assert reads.steps == []
    reads.left += 4
    await asyncio.sleep(4 * DELAY_S)
    assert reads.steps == [("a", 5)]


async def test_other_work_of_the_loop_comes_between_two_slices() -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 3 * SLICE)
    pump.add(reads)
    seen: list[int] = []
    while reads.is_behind:
        await asyncio.sleep(0)
        if not seen or seen[-1] != reads.left:
            seen.append(reads.left)
    assert seen == [3 * SLICE, 2 * SLICE, SLICE, 0]


async def test_slices_grow_with_a_backlog_that_outgrows_them() -> None:
    pump = Pump(delay_s=0)
    steps: list[tuple[str, int]] = []
    total = 2 * SLICE * SHARE
    for index in range(total):
        pump.add(Reads(str(index), 1, steps))
    turns = 0
    while len(steps) < total:
        before = len(steps)
        await asyncio.sleep(0)
        turns += len(steps) > before
    assert turns < total / SLICE


async def test_a_closed_pump_does_nothing_more() -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 1)
    pump.add(reads)
    pump.close()
    await asyncio.sleep(3 * DELAY_S)
    assert reads.is_behind


async def test_somebody_else_s_turn_takes_a_slice_of_what_is_due_and_nothing_before() -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", SLICE + 1)
    pump.add(reads)
    pump.turn()
    assert reads.steps == []
    time.sleep(DELAY_S)  # noqa: ASYNC251  # no turn of the loop is to come between
    pump.turn()
    assert reads.steps == [("a", SLICE)]
    await asyncio.sleep(0.02)
    assert reads.steps == [("a", SLICE), ("a", 1)]
    pump.close()
