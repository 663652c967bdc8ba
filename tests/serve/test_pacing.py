import asyncio
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from agentload.emulator.calls import EngineRequest, Finished, Rejected
from agentload.emulator.engine import Engine
from agentload.model.profile import ArmProfile, Speculation
from agentload.serve.faces import ChatFace, ServedRequest
from agentload.serve.pacing import Flight, Pacer
from agentload.serve.stream import Log, Stream
from agentload.serve.wanted import Wanted
from tests.serve.arms import arm
from tests.serve.scripts import plain
from tests.serve.test_stream import Pipe

OUTPUT = 200


def submitted(
    pacer: Pacer,
    name: str,
    *,
    prompt: int = 16,
    output: int = OUTPUT,
    arrived_ns: int | None = None,
) -> tuple[Flight, Log]:
    exchange = ServedRequest(
        id=name,
        created=1,
        model="tiny",
        fingerprint="vllm",
        wanted=Wanted(face="chat", model=None, stream=True),
        script=plain((" a",) * output, finish="length"),
        prompt_tokens=prompt,
    )
    log = Log(request_id=name, arrived_ns=arrived_ns or time.monotonic_ns())
    stream = Stream(ChatFace(exchange), Pipe(), log, tokens=output, is_chunked=True)
    return pacer.submit(
        EngineRequest(name, ((name, prompt),), output), arrived_ns=log.arrived_ns, stream=stream
    ), log


async def ended(*flights: Flight) -> list[Finished]:
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*(flight.end for flight in flights))
    assert all(isinstance(end, Finished) for end in ends)
    return [end for end in ends if isinstance(end, Finished)]


def planned(pacer: Pacer, end: Finished) -> set[int]:
    return {pacer.wall_ns(int(at)) for at in end.token_ns}


SMALL_POOL = replace(
    arm(step_ms=1), server=replace(arm().server, max_model_len=512, kv_cache_memory_bytes=256 * 600)
)
DRAFTING = replace(arm(step_ms=1), speculation=Speculation(drafts=3, acceptance=0.7))


@pytest.mark.parametrize(
    "served", [arm(step_ms=1), SMALL_POOL, DRAFTING], ids=["even", "preempting", "drafting"]
)
async def test_every_token_is_sent_once_and_at_an_instant_at_which_the_engine_emitted(
    served: ArmProfile,
) -> None:
    pacer = Pacer(Engine(served), speed=2)
    now_ns = time.monotonic_ns()
    calls = [submitted(pacer, f"c{index}", prompt=100, arrived_ns=now_ns) for index in range(4)]
    ends = await ended(*(flight for flight, _ in calls))
    assert (sum(end.preemptions for end in ends) > 0) == (served is SMALL_POOL)
    assert (len(ends[0].token_ns) < OUTPUT) == (served is DRAFTING)
    for end, (_, log) in zip(ends, calls, strict=True):
        assert sum(log.tokens) == OUTPUT
        assert set(log.planned_ns) <= planned(pacer, end)
        assert all(earlier < later for earlier, later in pairwise(log.planned_ns))
        assert all(before >= at for before, at in zip(log.before_ns, log.planned_ns, strict=True))
    pacer.close()


async def test_a_call_that_joins_later_has_its_own_count() -> None:
    pacer = Pacer(Engine(arm(step_ms=1)), speed=2)
    first, _ = submitted(pacer, "first")
    await asyncio.sleep(0.02)
    second, log = submitted(pacer, "second")
    await ended(first, second)
    assert sum(log.tokens) == OUTPUT
    pacer.close()


async def test_an_aborted_call_never_ends_and_the_others_go_on() -> None:
    pacer = Pacer(Engine(arm(step_ms=10)))
    kept, _ = submitted(pacer, "kept", output=20)
    left, log = submitted(pacer, "left", output=8_000)  # 80 s
    await asyncio.sleep(0.02)
    pacer.abort("left")
    before = sum(log.tokens)
    pacer.abort("unknown")
    await ended(kept)
    assert not left.end.done()
    assert sum(log.tokens) == before
    assert pacer.gauges().running == 0
    pacer.close()


async def test_a_refusal_arrives_without_anything_else_happening() -> None:
    pacer = Pacer(Engine(arm()))
    flight, _ = submitted(pacer, "long", prompt=9000)
    async with asyncio.timeout(60):
        assert isinstance(await flight.end, Rejected)
    pacer.close()


async def test_a_request_counts_from_its_arrival_not_from_when_it_was_read() -> None:
    pacer = Pacer(Engine(arm(step_ms=1)))
    arrived = time.monotonic_ns()
    time.sleep(0.005)  # noqa: ASYNC251  # reading a long prompt holds up the loop
    flight = pacer.submit(EngineRequest("late", (("late", 16),), 1), arrived_ns=arrived)
    assert pacer.wall_ns(flight.submitted_ns) == pytest.approx(arrived, abs=2)
    await ended(flight)
    pacer.close()


async def test_an_engine_that_runs_out_of_memory_loses_all_its_calls_and_goes_on() -> None:
    pacer = Pacer(Engine(arm(step_ms=1)), speed=2, most_tokens=1000)
    now_ns = time.monotonic_ns()
    calls = [submitted(pacer, f"c{index}", prompt=400, arrived_ns=now_ns)[0] for index in range(3)]
    async with asyncio.timeout(60):
        assert [await call.end for call in calls] == [None, None, None]
    assert pacer.gauges().running == 0
    later, _ = submitted(pacer, "later")
    await ended(later)
    pacer.close()
