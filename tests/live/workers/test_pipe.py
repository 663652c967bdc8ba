from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from agentload.live.workers.pipe import first, opened

pytestmark = pytest.mark.loopback
MESSAGES = [b"x" * size for size in (0, 1, 70_000, 2_000_000)] + [{"n": number} for number in range(1_000)]


async def test_messages_of_any_size_arrive_whole_and_in_order_and_a_close_is_noticed_behind_the_last() -> None:
    mine, theirs = socket.socketpair()
    heard: list[object] = []
    over = asyncio.Event()
    sender = await opened(mine, heard.append, lambda: None)
    await opened(theirs, heard.append, over.set)
    for message in MESSAGES:
        sender.say(message)
    sender.close()
    async with asyncio.timeout(5):
        await over.wait()
    assert heard == MESSAGES


async def test_the_first_message_can_be_waited_for_before_there_is_a_loop() -> None:
    mine, theirs = socket.socketpair()
    heard: list[object] = []
    with theirs:
        waiting = threading.Thread(target=lambda: heard.append(first(theirs)))
        waiting.start()
        sender = await opened(mine, heard.append, lambda: None)
        sender.say(MESSAGES[2])
        await asyncio.to_thread(waiting.join, 5)
        sender.close()
    assert heard == [MESSAGES[2]]


def test_an_end_that_goes_without_a_word_is_no_message() -> None:
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs, pytest.raises(EOFError):
        first(theirs)
