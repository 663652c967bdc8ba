from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from agentload.emulator.calls import EngineRequest, Finished
from agentload.emulator.engine import TRIM_STEPS, Engine
from agentload.emulator.steplog import StepLog
from agentload.emulator.stepper import span, steps_to_reach, steps_within
from tests.emulator.arms import small

PARTS = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 10**10), st.integers(0, 10**6)), max_size=20
)


@given(parts=PARTS, forget=st.integers(0, 3000))
def test_runs_of_steps_end_when_single_steps_would(
    parts: list[tuple[int, int, int]], forget: int
) -> None:
    log = StepLog()
    ends: list[int] = []
    now = 0
    for steps, first, growth in parts:
        log.append_run(now, steps, first, growth)
        for step in range(steps):
            now += first + step * growth
            ends.append(now)
        now += 5
        log.append(now)
        ends.append(now)
    later = log.since(forget)
    first = min(max(forget, 1), log.last + 1)
    assert (later.last, later.held) == (len(ends), len(ends) + 1 - first)
    assert later.ends_ps(first, log.last).tolist() == ends[first - 1 :]
    later.append(now + 1)
    assert later.ends_ps(first, later.last).tolist() == [*ends[first - 1 :], now + 1]
    assert log.ends_ps(1, log.last).tolist() == ends


@given(
    steps=st.integers(1, 10**6),
    first=st.integers(1, 10**11),
    growth=st.integers(0, 10**7),
    off=st.integers(-3, 3),
)
def test_counting_steps_inverts_summing_them(steps: int, first: int, growth: int, off: int) -> None:
    wait = max(1, span(steps, first, growth) + off)
    reached = steps_to_reach(wait, first, growth)
    assert span(reached - 1, first, growth) < wait <= span(reached, first, growth)
    within = steps_within(wait, first, growth)
    assert span(within, first, growth) <= wait < span(within + 1, first, growth)


def test_memory_grows_with_what_is_in_flight_and_not_with_what_is_done() -> None:
    engine = Engine(small(blocks=200))
    at = calls = 0
    while calls < 1500:
        engine.submit(EngineRequest(str(calls), (("shared", 40), (f"own{calls}", 100)), 200), at)
        while (nxt := engine.next_ns()) is not None:
            for event in engine.advance(nxt):
                if isinstance(event, Finished):
                    at, calls = event.at_ns, calls + 1
    assert engine._scheduler.steps.log.held <= TRIM_STEPS + 200
    assert len(engine._scheduler.kv._cache._queue) < 500
    assert not engine._scheduler.calls
    assert not engine._scheduler._external


def test_a_long_call_keeps_one_log_beside_short_ones() -> None:
    engine = Engine(small(blocks=4000, max_len=30_000))
    engine.submit(EngineRequest("long", (("own", 100),), 20_000), 0)
    logs = {id(engine._scheduler.steps.log): engine._scheduler.steps.log}
    engine.submit(EngineRequest("0", (("own0", 10),), 60), 0)
    calls = 0
    while engine._scheduler.steps.log.held < TRIM_STEPS + 2000:
        nxt = engine.next_ns()
        assert nxt is not None
        for event in engine.advance(nxt):
            if isinstance(event, Finished):
                calls += 1
                request = EngineRequest(str(calls), ((f"own{calls}", 10),), 60)
                engine.submit(request, event.at_ns)
        logs[id(engine._scheduler.steps.log)] = engine._scheduler.steps.log
    assert len(logs) == 1
