import asyncio
import time

from agentload.serve.delivery import TrickledBody
from agentload.serve.stream import drain
from tests.serve.test_stream import Pipe


async def test_bytes_leave_one_by_one_at_their_pace() -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.004)
    start = time.monotonic()
    slow.write(b"slow")
    slow.write(b"ly")
    assert slow.get_write_buffer_size() == 6
    await drain(slow)
    assert b"".join(pipe.written) == b"slowly"
    assert time.monotonic() - start >= 0.024
    assert len(pipe.written) > 1


async def test_bytes_that_are_due_more_often_than_the_loop_wakes_leave_together() -> None:
    pipe = Pipe()
    slow = TrickledBody(pipe, byte_s=0.00001)
    slow.write(b"x" * 2000)
    async with asyncio.timeout(20):
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
