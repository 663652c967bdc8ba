import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from agentload.live.pump import SHARE, SLICE, Pump

DELAY_S = 0.005


class Passing:
    """The clock of the loop; time passes as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s)

    async def on(self, seconds: float) -> None:
        """Let so many seconds pass, and the loop take the turns that are due then."""
        self.now_s += seconds
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def passing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Passing]:
    with monkeypatch.context() as patched:
        yield Passing(patched)


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


async def test_backlogs_are_worked_off_in_slices_in_the_order_of_their_beginning(
    passing: Passing,
) -> None:
    pump = Pump(delay_s=DELAY_S)
    steps: list[tuple[str, int]] = []
    for name, left in (("a", 3), ("b", SLICE + 5), ("c", 1)):
        pump.add(Reads(name, left, steps))
    await asyncio.sleep(0)
    assert steps == []
    await passing.on(3 * DELAY_S)
    assert steps == [("a", 3), ("b", SLICE - 3), ("b", 8), ("c", 1)]


async def test_what_arrives_while_a_backlog_waits_is_parsed_with_it(passing: Passing) -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 1)
    pump.add(reads)
    await asyncio.sleep(0)
    assert reads.steps == []
    reads.left += 4
    await passing.on(4 * DELAY_S)
    assert reads.steps == [("a", 5)]


async def test_other_work_of_the_loop_comes_between_two_slices(passing: Passing) -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 3 * SLICE)
    pump.add(reads)
    seen: list[int] = []
    for _ in range(100):
        await asyncio.sleep(0)
        if not seen or seen[-1] != reads.left:
            seen.append(reads.left)
        passing.now_s += DELAY_S
    assert seen == [3 * SLICE, 2 * SLICE, SLICE, 0]


async def test_slices_grow_with_a_backlog_that_outgrows_them() -> None:
    pump = Pump(delay_s=0)
    steps: list[tuple[str, int]] = []
    total = 2 * SLICE * SHARE
    for index in range(total):
        pump.add(Reads(str(index), 1, steps))
    turns = 0
    for _ in range(10 * total):
        before = len(steps)
        await asyncio.sleep(0)
        turns += len(steps) > before
    assert len(steps) == total
    assert turns < total / SLICE


async def test_a_closed_pump_does_nothing_more(passing: Passing) -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", 1)
    pump.add(reads)
    pump.close()
    await passing.on(3 * DELAY_S)
    assert reads.is_behind


async def test_somebody_else_s_turn_takes_a_slice_of_what_is_due_and_nothing_before(
    passing: Passing,
) -> None:
    pump = Pump(delay_s=DELAY_S)
    reads = Reads("a", SLICE + 1)
    pump.add(reads)
    pump.turn()
    assert reads.steps == []
    passing.now_s += DELAY_S  # no turn of the loop is to come between
    pump.turn()
    assert reads.steps == [("a", SLICE)]
    await passing.on(0.02)
    assert reads.steps == [("a", SLICE), ("a", 1)]
    pump.close()
