"""Which stages a run has where arms change machines, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError, InterruptError, StoreError
from agentload.layout.cost import cost
from agentload.layout.plan import Scheme, plan
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.model.rows import CallRow
from agentload.run.audience import Audience, check_stored
from agentload.run.evaluation import ask
from agentload.run.lay import Prepared
from agentload.run.measure import measure, play_stages
from agentload.run.past import Past
from agentload.run.place import StudyPlace
from agentload.run.play import Played
from agentload.run.record import Stored
from agentload.run.stages import is_exchanged, is_over, stages
from agentload.store import journal
from agentload.store.places import journals
from tests.layout.test_plan import swapped
from tests.live.scripted import STREAM, Peer, serving, token
from tests.run.playing import answering, playing, trace
from tests.run.test_ask import evaluation

PLACE = StudyPlace(database=Path("x.duckdb"))
DONE, LOCKED = Stored(run_id="r1"), Stored(run_id="r1", load_error="locked")


def test_a_run_that_the_database_does_not_have_is_an_error_and_a_stopped_one_stays_that() -> None:
    said: list[str] = []
    audience = Audience(notice=said.append)
    check_stored(DONE, PLACE, audience)
    with pytest.raises(
        StoreError, match=r"^run r1 is in its journal but not in x.duckdb: locked$"
    ) as caught:
        check_stored(LOCKED, PLACE, audience)
    assert caught.value.hint == "agentload runs load r1 --db x.duckdb"
    stopped = InterruptError("run r1 was stopped")
    with pytest.raises(InterruptError):
        check_stored(DONE, PLACE, audience, stopped=stopped)
    assert said == []
    with pytest.raises(InterruptError):
        check_stored(LOCKED, PLACE, audience, stopped=stopped)
    assert said == [
        "warning: run r1 is in its journal but not in x.duckdb: locked",
        "hint: agentload runs load r1 --db x.duckdb",
    ]


@pytest.mark.parametrize("clock_steps", [0, 2])
def test_what_makes_timings_void_is_said(
    monkeypatch: pytest.MonkeyPatch, *, clock_steps: int
) -> None:
    facts = WireFacts(
        unstamped_reads=0, unstamped_sends=0, clock_steps=clock_steps, largest_step_ns=0
    )
    ended = Played(run_id="r1", health=Monitor().health(facts), was_stopped=False)
    monkeypatch.setattr("agentload.run.measure.play_stages", lambda *_: ended)
    made = playing(plan(trace(), ["a"], run="r1", scheme=Scheme(pairs=1)), (), Path("x.duckdb"))
    said: list[str] = []
    measure(
        Prepared(playing=made, cost=lambda: cost(made.plan)),
        StudyPlace(),
        Audience(notice=said.append),
    )
    warned = " timings are invalid: the wall clock was stepped 2 times"
    assert [line.partition(":")[2][: len(warned)] for line in said] == (
        [warned] if clock_steps else []
    )


BEGUN = Event()
"""A call is on its way, in the thread that plays."""


async def trickling(peer: Peer) -> None:
    """Answer whatever is asked for, and never end an answer."""
    if not peer.request.line.split()[1].endswith("/chat/completions"):
        await answering()(peer)
        return
    await peer.send(STREAM)
    BEGUN.set()
    while not peer.writer.is_closing():
        await peer.events(token("a"))
        await asyncio.sleep(0.02)


def stopped_soon(said: list[str]) -> Audience:
    """Return somebody who asks once to stop, when the first call is on its way."""
    BEGUN.clear()

    @contextmanager
    def stopping(stop: Callable[[], None]) -> Iterator[None]:
        def look() -> None:
            if BEGUN.is_set():
                stop()
            else:
                asyncio.get_running_loop().call_later(0.02, look)

        look()
        yield

    return Audience(notice=said.append, stopping=stopping, ending_s=0.3)


async def test_a_stopped_replay_ends_in_bounded_time_whatever_its_servers_do(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    async with serving(trickling) as server:
        how = playing(
            plan(trace(), ["a"], run="r1", scheme=Scheme(pairs=1)),
            [Endpoint(name="a", url=server.url)],
            tmp_path / "x.duckdb",
        )
        ended = await asyncio.wait_for(asyncio.to_thread(play_stages, how, stopped_soon(said)), 60)
    assert ended.was_stopped
    rows = [row for path in journals(how.database, "r1") for row in journal.read(path)]
    assert {row.status for row in rows if isinstance(row, CallRow)} == {"stopped"}
    assert [line for line in said if "stop" in line] == [
        "stopping: what is in flight has 0.3 s to end; Ctrl-C again ends it now"
    ]


async def test_stopped_questions_end_in_bounded_time_and_are_asked_again(tmp_path: Path) -> None:
    async with serving(trickling) as server:
        made = replace(
            evaluation(tmp_path, server.url), endpoints=(Endpoint(name="a", url=server.url),)
        )
        ended = await asyncio.wait_for(asyncio.to_thread(ask, made, stopped_soon([])), 60)
    assert (ended.answered, ended.failed, ended.left) == (0, 0, 2)


EXCHANGED = (
    Endpoint(name="a", url="http://m1:1/v1", machine="m1"),
    Endpoint(name="b", url="http://m2:1/v1", machine="m2"),
)


def everywhere(name: str, port: int) -> Endpoint:
    first, second = (
        Endpoint(name=name, url=f"http://{machine}:{port}/v1", machine=machine)
        for machine in ("m1", "m2")
    )
    return Endpoint(name=name, url=first.url, machine="m1", places=(first, second))


@pytest.mark.parametrize(
    ("endpoints", "done", "lost", "over"),
    [
        (EXCHANGED, {0}, {1: 1}, False),
        (EXCHANGED, {0, 1}, {}, True),
        (
            EXCHANGED,
            {0},
            {1: 3, 2: 1},
            True,
        ),  # b has a's address by now: pair 1 would be played on the wrong servers
        (EXCHANGED, {0, 2}, {1: 3}, True),
        ((everywhere("a", 1), everywhere("b", 2)), {0}, {1: 3, 2: 1}, False),
    ],
)
def test_a_half_is_over_when_it_is_done_or_its_servers_were_exchanged(
    endpoints: tuple[Endpoint, ...], done: set[int], lost: dict[int, int], *, over: bool
) -> None:
    steps = stages(swapped(), endpoints)
    before = Past(done=frozenset(done), lost=lost)
    assert is_over(steps, 0, before) == over
    assert not is_over(steps, 1, before)


def test_arms_speak_to_the_machine_that_they_play_on_and_say_whose_address_they_took() -> None:
    one, two = stages(swapped(), EXCHANGED)
    assert ({each.name: each.url for each in one.endpoints}, one.taken_from) == (
        {"a": "http://m1:1/v1", "b": "http://m2:1/v1"},
        {},
    )
    assert {each.name: each.url for each in two.endpoints} == {
        "a": "http://m2:1/v1",
        "b": "http://m1:1/v1",
    }
    assert two.taken_from == {"a": "b", "b": "a"}
    _, there = stages(swapped(), (everywhere("a", 1), everywhere("b", 2)))
    assert {each.name: each.url for each in there.endpoints} == {
        "a": "http://m2:1/v1",
        "b": "http://m1:2/v1",
    }
    assert there.taken_from == {}


BF16, FP8 = {"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "fp8"}


@pytest.mark.parametrize(
    ("there_before", "now", "exchanged"),
    [
        (FP8 | {"process_start_s": 5.0}, BF16 | {"process_start_s": 9.0}, True),
        (FP8 | {"process_start_s": 5.0}, BF16, True),
        (
            FP8 | {"process_start_s": 5.0},
            FP8 | {"process_start_s": 9.0},
            False,
        ),  # started again as what it was
        (FP8, FP8, False),
        (
            BF16 | {"process_start_s": 5.0},
            BF16 | {"process_start_s": 9.0},
            True,
        ),  # alike, but another process
        (BF16 | {"process_start_s": 5.0}, BF16 | {"process_start_s": 5.0}, False),
        (BF16 | {"process_start_s": 5.0}, BF16, None),
    ],
)
def test_a_server_is_exchanged_when_another_process_is_the_arm_that_belongs_there(
    there_before: dict[str, object], now: dict[str, object], *, exchanged: bool | None
) -> None:
    if exchanged is None:
        with pytest.raises(EndpointError, match="both servers look alike"):
            is_exchanged(BF16, there_before, now)
    else:
        assert is_exchanged(BF16, there_before, now) == exchanged


def test_a_resumed_half_has_only_those_rounds_left_that_were_not_done() -> None:
    first, _ = stages(swapped(), EXCHANGED)
    assert [
        play.pair
        for round_ in first.left(Past(done=frozenset({0}), lost={}))
        for play in round_.plays
    ] == [1, 1]


def test_a_resumed_half_warms_up_again_unless_it_has_nothing_left() -> None:
    first, _ = stages(swapped(warmup=True), EXCHANGED)

    def left(*done: int) -> list[int]:
        return [
            play.pair
            for round_ in first.left(Past(done=frozenset(done), lost={}))
            for play in round_.plays
        ]

    assert (left(-1, 0), left(-1, 0, 1)) == ([-1, -1, 1, 1], [])
