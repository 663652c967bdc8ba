from __future__ import annotations

import asyncio
import time

from agentload.live.alarm import Timetable

MS = 1_000_000


async def test_things_are_done_in_the_order_of_their_instants_and_not_before() -> None:
    timetable = Timetable()
    done: list[tuple[str, int]] = []
    start_ns = time.monotonic_ns()
    for name, after_ms in (("later", 300), ("soon", 100), ("with it", 100), ("past", -5)):
        timetable.at(
            start_ns + after_ms * MS,
            # mypy cannot infer a lambda with a default
            lambda name=name: done.append((name, time.monotonic_ns())),  # type: ignore[misc]
        )
    assert [name for name, _ in done] == ["past"]
    ended = asyncio.Event()
    timetable.at(start_ns + 301 * MS, ended.set)
    await asyncio.wait_for(ended.wait(), 60)
    assert [name for name, _ in done] == ["past", "soon", "with it", "later"]
    assert [
        at_ns >= start_ns + after_ms * MS
        for (_, at_ns), after_ms in zip(done, (-5, 100, 100, 300), strict=True)
    ] == [True] * 4
    timetable.close()


async def test_a_closed_timetable_does_nothing_more() -> None:
    timetable = Timetable()
    done: list[int] = []
    timetable.at(time.monotonic_ns() + 5 * MS, lambda: done.append(1))
    timetable.close()
    await asyncio.sleep(0.02)
    assert done == []


async def test_a_mistake_in_one_thing_leaves_the_others_their_instants() -> None:
    timetable = Timetable()
    done: list[str] = []
    mistakes: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(context["exception"])
    )

    def wrong() -> None:
        raise ZeroDivisionError

    start_ns = time.monotonic_ns()
    timetable.at(start_ns + 5 * MS, wrong)
    timetable.at(start_ns + 15 * MS, lambda: done.append("right"))
    ended = asyncio.Event()
    timetable.at(start_ns + 16 * MS, ended.set)
    await asyncio.wait_for(ended.wait(), 60)
    assert ([type(mistake) for mistake in mistakes], done) == ([ZeroDivisionError], ["right"])
    timetable.close()
