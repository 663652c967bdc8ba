"""What a call took, by values."""

from __future__ import annotations

import pytest

from agentload.model import metrics
from agentload.model.metrics import Clock, ClockStart
from agentload.model.plan import Arrivals, ClosedLoop, Load, OpenLoop, Recorded
from agentload.model.stamps import stamps
from tests.store.rows import MS, S, call


@pytest.mark.parametrize(
    ("arrivals", "max_in_flight", "start"),
    [
        (Recorded(), None, "due"),
        (OpenLoop(rate_per_s=1), None, "due"),
        (Recorded(), 8, "released"),
        (OpenLoop(rate_per_s=1), 8, "released"),
        (ClosedLoop(sessions=2), None, "released"),
    ],
)
def test_the_clock_starts_at_due_unless_we_hold_turns_back_ourselves(
    arrivals: Arrivals, max_in_flight: int | None, start: ClockStart
) -> None:
    load = Load(arrivals=arrivals, max_in_flight=max_in_flight)
    assert metrics.clock_start(load) == start


def test_a_turn_sent_again_counts_from_its_first_attempt() -> None:
    first = call(1, status="busy", due_ns=1 * S, released_ns=2 * S, request_id="a")
    again = call(
        1, status="reset", due_ns=5 * S, released_ns=6 * S, request_id="b", retry_of="a", attempt=1
    )
    last = call(1, due_ns=8 * S, released_ns=9 * S, request_id="c", retry_of="b", attempt=2)
    other = call(2, due_ns=8 * S, released_ns=9 * S, request_id="d")
    due, released = Clock("due"), Clock("released")
    assert [due.since_ns(row) for row in (first, other, again, last)] == [
        1 * S,
        8 * S,
        1 * S,
        1 * S,
    ]
    assert [released.since_ns(row) for row in (first, other, again, last)] == [
        2 * S,
        9 * S,
        2 * S,
        2 * S,
    ]
    assert Clock("due").since_ns(last) == 8 * S  # whose first attempt nobody saw


def test_latencies_run_from_the_clocks_start_to_the_first_token_and_to_the_last_byte() -> None:
    row = call(1, first_ns=3 * S, last_ns=4 * S, done_ns=5 * S)
    assert (metrics.ttft_ms(row, 1 * S), metrics.turn_ms(row, 1 * S)) == (2_000.0, 4_000.0)
    assert (metrics.ttft_ms(call(1), 0), metrics.turn_ms(call(1), 0)) == (None, None)


@pytest.mark.parametrize(
    ("output_tokens", "chunks", "tpot_ms"),
    [
        (16, [4, 4, 4, 4], 20.0),
        (None, [4, 4, 4, 4], 20.0),
        (16, [7, 7, 2], 240 / 9),
        (13, None, 20.0),  # nobody knows of its chunks: the first is taken for one token
        (13, [], 20.0),
        (1, [1], None),
        (4, [4], None),
        (3, [4, 4], None),
        (None, None, None),
    ],
)
def test_tokens_of_the_first_chunk_took_no_time_between_them(
    output_tokens: int | None, chunks: list[int] | None, tpot_ms: float | None
) -> None:
    packed = (
        None
        if chunks is None
        else stamps([1 * S + place * MS for place in range(len(chunks))], chunks)
    )
    row = call(
        1, first_ns=1 * S, last_ns=1 * S + 240 * MS, output_tokens=output_tokens, chunks=packed
    )
    assert metrics.tpot_ms(row) == tpot_ms
    assert metrics.tpot_ms(call(1, first_ns=1 * S, output_tokens=5)) is None


@pytest.mark.parametrize(
    ("opened_ns", "dialled_ns", "lag_ms"),
    [
        (None, None, 50.0),
        (48 * MS, None, 2.0),
        (-MS, None, 50.0),
        (48 * MS, 40 * MS, 42.0),
        (48 * MS, -MS, 2.0),
    ],
)
def test_opening_a_connection_is_no_lag_of_ours_but_to_begin_late_is(
    opened_ns: int | None, dialled_ns: int | None, lag_ms: float
) -> None:
    row = call(1, released_ns=0, dialled_ns=dialled_ns, opened_ns=opened_ns, sent_ns=50 * MS)
    assert metrics.lag_ns(row) == lag_ms * MS
    assert metrics.lag_ms(row) == lag_ms
    assert metrics.lag_ms(call(1)) is None
