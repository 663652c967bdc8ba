from __future__ import annotations

import asyncio
import pickle
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.live.workers.messages import Contexts
from agentload.live.workers.pipe import connect, receive
from agentload.model.trace import Segment

MESSAGES = [b"x" * size for size in (0, 1, 70_000, 2_000_000)] + [
    {"n": number} for number in range(1_000)
]


def segment(key: int) -> Segment:
    return Segment(role="user", tokens=1, key=str(key))


@given(
    st.lists(
        st.tuples(
            st.sampled_from("xy"), st.integers(0, 6), st.lists(st.integers(0, 9), max_size=3)
        ),
        max_size=12,
    )
)
def test_whatever_contexts_grow_or_are_cut_to_the_other_end_has_them_whole(
    steps: list[tuple[str, int, list[int]]],
) -> None:
    told, heard = Contexts(), Contexts()
    last: dict[str, tuple[Segment, ...]] = {}
    for session, keep, added in steps:
        context = last.get(session, ())[:keep] + tuple(map(segment, added))
        last[session] = context
        for _ in range(2):  # made ready, then sent
            kept, new = told.new(("a", session), context)
            assert heard.whole(("a", session), kept, pickle.loads(pickle.dumps(new))) == context


def test_only_what_is_new_is_told() -> None:
    told = Contexts()
    first = tuple(map(segment, range(300)))
    grown, cut = (*first, segment(300)), (*first[:2], segment(301))
    assert [told.new(("a", "s"), context) for context in (first, grown, grown, cut)] == [
        (0, first),
        (300, grown[300:]),
        (301, ()),
        (2, cut[2:]),
    ]


def test_a_forgotten_session_is_told_from_its_start() -> None:
    told = Contexts()
    context = (segment(1),)
    told.new(("a", "s"), context)
    told.new(("b", "s"), context)
    told.forget(("a", "s"))
    assert [told.new((arm, "s"), context) for arm in "ab"] == [(0, context), (1, ())]


@pytest.mark.loopback
async def test_messages_of_any_size_arrive_whole_and_in_order_and_a_close_is_noticed_behind_the_last() -> (
    None
):
    mine, theirs = socket.socketpair()
    heard: list[object] = []
    over = asyncio.Event()
    sender = await connect(mine, heard.append, lambda: None)
    await connect(theirs, heard.append, over.set)
    for message in MESSAGES:
        sender.say(message)
    sender.close()
    async with asyncio.timeout(60):
        await over.wait()
    assert heard == MESSAGES


@pytest.mark.loopback
async def test_the_first_message_can_be_waited_for_before_there_is_a_loop() -> None:
    mine, theirs = socket.socketpair()
    heard: list[object] = []
    with theirs:
        waiting = threading.Thread(target=lambda: heard.append(receive(theirs)))
        waiting.start()
        sender = await connect(mine, heard.append, lambda: None)
        sender.say(MESSAGES[2])
        await asyncio.to_thread(waiting.join, 5)
        sender.close()
    assert heard == [MESSAGES[2]]


@pytest.mark.loopback
def test_an_end_that_goes_without_a_word_is_no_message() -> None:
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs, pytest.raises(EOFError):
        receive(theirs)
