import asyncio
import socket
from collections.abc import Iterable, Iterator

import pytest

from agentload.live.hub import BATCH, COMPARED, LONG_REST_S, MANY, REST_S, SHORT_RESTS, Hub

pytestmark = pytest.mark.loopback


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(BATCH + 10)]
    for ours, _ in made:
        ours.setblocking(False)
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


async def test_everybody_who_has_something_to_read_is_called_however_many_they_are(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    hub = Hub()
    heard: list[bytes] = []
    for ours, theirs in pairs:
        # a default is no parameter
        hub.watch(ours.fileno(), lambda ours=ours: heard.append(ours.recv(9)))  # type: ignore[misc]
        theirs.send(b"x")
    async with asyncio.timeout(60):
        while len(heard) < len(pairs):  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(REST_S)
    assert heard == [b"x"] * len(pairs)
    hub.close()


async def test_what_comes_fast_and_what_comes_after_a_rest_is_all_heard(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    hub = Hub()
    heard: list[bytes] = []
    ours, theirs = pairs[0]
    hub.watch(ours.fileno(), lambda: heard.append(ours.recv(1)))
    for pause_s in (0.0, 0.0, 0.0, REST_S / 2, REST_S / 2, 5 * REST_S, 5 * REST_S, 0.0):
        theirs.send(b"x")
        await asyncio.sleep(pause_s)
    async with asyncio.timeout(60):
        while len(heard) < 8:  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(REST_S)
    assert heard == [b"x"] * 8
    hub.close()


async def test_who_leaves_in_the_middle_of_a_look_is_not_called(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    hub = Hub()
    called: list[int] = []

    def first_come(me: int) -> None:
        called.append(me)
        for ours, _ in pairs[:2]:
            hub.leave(ours.fileno())

    for index, (ours, theirs) in enumerate(pairs[:2]):
        # a default is no parameter
        hub.watch(ours.fileno(), lambda me=index: first_come(me))  # type: ignore[misc]
        theirs.send(b"x")
    await asyncio.sleep(10 * REST_S)
    assert len(called) == 1
    hub.leave(pairs[0][0].fileno())
    hub.close()


async def test_a_mistake_in_one_callback_makes_nobody_deaf(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    hub = Hub()
    heard: list[bytes] = []
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(context["exception"])
    )
    (wrong, to_wrong), (right, to_right) = pairs[:2]

    def mistaken() -> None:
        wrong.recv(1)
        if hub._timer is not None:  # a timer looks, not the loop
            raise ZeroDivisionError

    hub.watch(wrong.fileno(), mistaken)
    hub.watch(right.fileno(), lambda: heard.append(right.recv(1)))
    sent = 0
    async with asyncio.timeout(60):
        while not mistakes or sent < 20:  # so fast that a timer looks
            to_wrong.send(b"x")
            to_right.send(b"x")
            sent += 1
            await asyncio.sleep(0)
        while len(heard) < sent:  # noqa: ASYNC110  # what is heard is not ours to announce
            await asyncio.sleep(REST_S)
    assert {type(mistake) for mistake in mistakes} == {ZeroDivisionError}
    hub.close()


async def test_each_batch_pays_for_a_turn_of_something_else(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    beside: list[int] = []
    hub = Hub(beside=lambda: beside.append(1))
    ours, theirs = pairs[0]
    # what it returns is not looked at
    hub.watch(ours.fileno(), lambda: ours.recv(1))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while not beside:
            theirs.send(b"x")
            await asyncio.sleep(0)
    hub.close()


async def test_one_that_is_hastened_waits_for_no_batch_and_leaves_like_any_other(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    hub = Hub()
    heard: list[str] = []
    for name, (ours, _) in zip(("batch", "soon"), pairs, strict=False):
        hub.watch(
            ours.fileno(),
            # a default is no parameter
            lambda name=name, ours=ours: heard.append(name + ours.recv(99).decode()),  # type: ignore[misc]
        )
    (batch, to_batch), (soon, to_soon) = pairs[:2]
    async with asyncio.timeout(60):
        while hub._timer is None:  # so fast that a timer looks
            to_batch.send(b"x")
            await asyncio.sleep(0)
    for _ in range(2):  # a second time changes nothing
        hub.hasten(soon.fileno())
    to_batch.send(b"!")
    to_soon.send(b"!")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "soon!" in heard
    hub.leave(soon.fileno())
    to_soon.send(b"?")
    async with asyncio.timeout(60):
        # what is heard is not ours to announce
        while heard[-1][:5] != "batch" or heard[-1][-1] != "!":  # noqa: ASYNC110
            await asyncio.sleep(REST_S)
    assert heard.count("soon!") == 1
    assert "soon?" not in heard
    hub.leave(batch.fileno())
    hub.hasten(batch.fileno())  # nobody watches it
    hub.close()


async def test_batches_come_more_often_from_when_a_stream_has_something_in_one_after_the_other() -> (
    None
):
    hub = Hub()

    def rests(files: Iterable[tuple[int, ...]]) -> list[float]:
        return [hub._rest_s([(file, 1) for file in each]) for each in files]

    assert set(rests((number,) for number in range(100))) == {LONG_REST_S}
    found = rests((7, number) for number in range(100))
    first = found.index(REST_S)
    assert first <= COMPARED
    assert set(found[first:]) == {REST_S}
    assert set(rests([tuple(range(MANY - 1))] * 2)) == {REST_S}
    assert set(rests([tuple(range(MANY))] * 2)) == {
        LONG_REST_S
    }  # to wake more often would fill the core
    assert rests((number,) for number in range(2 * SHORT_RESTS))[-1] == LONG_REST_S
    hub.close()
