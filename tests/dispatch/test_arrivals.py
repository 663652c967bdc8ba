from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.arrivals import SECOND, open_starts, rng_of
from agentload.dispatch.intake import AHEAD_NS, SessionStarts
from agentload.model.plan import ClosedLoop, OpenLoop, PlannedBurst
from agentload.model.trace import Session


def starts(load: OpenLoop, until_s: float) -> list[float]:
    return [
        at / SECOND
        for at in takewhile(lambda at: at < until_s * SECOND, open_starts(load, rng_of("test")))
    ]


def counted(found: list[float], from_s: float, until_s: float) -> int:
    return sum(from_s <= at < until_s for at in found)


def test_an_even_rate_starts_at_once_and_every_period() -> None:
    assert starts(OpenLoop(rate_per_s=4, cv=0), 1) == [0, 0.25, 0.5, 0.75]


def test_a_ramp_rises_evenly_and_then_stays() -> None:
    found = starts(OpenLoop(rate_per_s=10, cv=0, ramp_s=10), 20)
    # Half of the ramp holds a quarter of its starts: the area under the line.
    assert [counted(found, 0, 5), counted(found, 5, 10), counted(found, 10, 20)] == pytest.approx(
        [12.5, 37.5, 100], abs=1
    )
    assert found[1] == pytest.approx(2**0.5)  # at + at^2/2 of a rate that grows by 1 a second


def test_a_ramp_may_begin_above_nothing_and_may_fall() -> None:
    found = starts(OpenLoop(rate_per_s=1, cv=0, ramp_s=10, ramp_from_per_s=9), 20)
    assert [counted(found, 0, 10), counted(found, 10, 20)] == pytest.approx([50, 10], abs=1)


def test_a_burst_multiplies_the_rate_at_the_end_of_every_period() -> None:
    found = starts(
        OpenLoop(rate_per_s=2, cv=0, burst=PlannedBurst(factor=5, seconds=10, every_s=60)), 120
    )
    assert [
        counted(found, a, b) for a, b in ((0, 50), (50, 60), (60, 110), (110, 120))
    ] == pytest.approx([100] * 4, abs=1)


def test_a_ramp_and_bursts_go_together() -> None:
    found = starts(
        OpenLoop(
            rate_per_s=10, cv=0, ramp_s=20, burst=PlannedBurst(factor=3, seconds=5, every_s=10)
        ),
        30,
    )
    assert [
        counted(found, a, b) for a, b in ((0, 5), (5, 10), (10, 15), (15, 20), (20, 25), (25, 30))
    ] == pytest.approx([6.25, 56.25, 31.25, 131.25, 50, 150], abs=1)


@given(
    rate=st.floats(0.5, 50),
    cv=st.floats(0, 3),
    ramp_s=st.just(0.0) | st.floats(0.001, 20),
    ramp_from=st.floats(0, 50),
    burst=st.none()
    | st.builds(
        PlannedBurst, factor=st.floats(1, 9), seconds=st.floats(0.5, 4), every_s=st.floats(5, 30)
    ),
)
def test_starts_never_run_backwards(
    rate: float, cv: float, ramp_s: float, ramp_from: float, burst: PlannedBurst | None
) -> None:
    load = OpenLoop(rate_per_s=rate, cv=cv, ramp_s=ramp_s, ramp_from_per_s=ramp_from, burst=burst)
    stream = open_starts(load, rng_of("any"))
    found = [next(stream) for _ in range(50)]
    assert found[0] == 0
    assert found == sorted(found)


def test_poisson_starts_come_at_the_rate() -> None:
    assert counted(starts(OpenLoop(rate_per_s=20), 500), 0, 500) == pytest.approx(10_000, rel=0.03)


def test_a_closed_loop_opens_its_places_one_after_the_other_and_refills_them_at_once() -> None:
    sessions = tuple(
        Session(session=f"s{i}", workload="w", start_s=0.0, turns=()) for i in range(6)
    )
    intake = SessionStarts(sessions, ClosedLoop(sessions=4, ramp_s=8), seed=("test",), started_ns=0)
    begun = [start for at_s in range(7) for _, start in intake.take(at_s * SECOND)]
    assert begun == [0, 2 * SECOND, 4 * SECOND, 6 * SECOND]
    intake.ended("s0", 7 * SECOND)
    assert intake.next_ns() == 7 * SECOND - AHEAD_NS
