import asyncio
from collections.abc import Callable

import pytest

from agentload.serve.delivery import TrickledBody
from agentload.serve.stream import drain
from tests.serve.test_stream import Pipe


class Timers:
    """Be as much of a loop as a trickle needs; time passes as the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        self.due.append((at_s, callback))

    def wake(self, *, late_s: float = 0.0) -> None:
        at_s, callback = self.due.pop(0)
        self.now_s = at_s + late_s
        callback()


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def test_bytes_leave_one_by_one_at_their_pace(timers: Timers) -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.004)
    slow.write(b"slow")
    slow.write(b"ly")
    assert slow.get_write_buffer_size() == 6
    left_s = []
    while timers.due:
        timers.wake()
        left_s.append(timers.now_s - 100.0)
    assert pipe.written == [b"s", b"l", b"o", b"w", b"l", b"y"]
    assert left_s == pytest.approx([0.004, 0.008, 0.012, 0.016, 0.020, 0.024])


def test_bytes_that_were_due_while_the_loop_slept_leave_together(timers: Timers) -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.004)
    slow.write(b"slowly")
    timers.wake(late_s=0.009)
    timers.wake()
    assert pipe.written == [b"slo", b"w"]
    assert timers.now_s - 100.0 == pytest.approx(0.016)


async def test_bytes_that_are_due_more_often_than_the_loop_wakes_leave_together() -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.00001)
    slow.write(b"x" * 2000)
    async with asyncio.timeout(60):
        await drain(slow)
    assert b"".join(pipe.written) == b"x" * 2000
    assert len(pipe.written) < 200


async def test_nothing_is_sent_to_a_reader_that_has_gone() -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.001)
    slow.write(b"gone")
    pipe.closed = True
    await asyncio.sleep(0.02)
    assert (pipe.written, slow.get_write_buffer_size()) == ([], 0)
