"""The lateness that a part of a run says of itself is the one that is read from its stored rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.gates import client
from advisor.policy import Policy
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.live import health
from agentload.live.health import Monitor
from agentload.model.rows import BlockRow, CallRow, Row
from tests.evidence.runs import MS, S, arm, block, call, leg, run, stored

ARMS = ("bf16", "fp8")


def late(
    name: str, pair: int, number: int, late_ms: float, *, at_s: float = 10.0, **changed: Any
) -> CallRow:
    """Make a call that left so many ms after its instant."""
    made = call(name, pair, at_s + pair * 400 + (200 if name == "fp8" else 0), f"s{number}")
    rest: dict[str, Any] = {"sent_ns": made.released_ns + round(late_ms * MS)} | changed
    return call(name, pair, at_s + pair * 400 + (200 if name == "fp8" else 0), f"s{number}", **rest)


def blocks(pair: int, **changed: Any) -> list[BlockRow]:
    """Make the two blocks of a pair; *changed* is of its second."""
    return [block("bf16", pair, pair * 400), block("fp8", pair, pair * 400 + 200, **changed)]


def calls(pair: int, slow_ms: float = 2.0) -> list[CallRow]:
    """Make 20 calls an arm and pair, of which those to fp8 leave late."""
    return [
        late(name, pair, number, slow_ms if name == "fp8" else 0.5)
        for name in ARMS
        for number in range(20)
    ]


PRIMED = [late("fp8", 0, 90 + number, 40.0, prime=True) for number in range(5)]
CANCELLED = [late("fp8", 0, 80 + number, 40.0, status="cancelled") for number in range(5)]
TRIED_AGAIN = [
    made
    for number in range(5)
    for made in (
        late("fp8", 0, 70 + number, 40.0, status="busy", request_id=f"busy{number}"),
        late("fp8", 0, 70 + number, 1.0, at_s=20.0, attempt=1, retry_of=f"busy{number}"),
    )
]
REFUSED = [late("fp8", 0, 60 + number, 30.0, status="refused") for number in range(5)]
DIALLED = [
    late("fp8", 0, 50 + number, 50.0, dialled_ns=0, opened_ns=(210 + 1) * S) for number in range(5)
]
CONTROL = [
    replace(late("bf16", 0, 40 + number, 40.0, at_s=360.0), arm="bf16@aa") for number in range(5)
]


@pytest.mark.parametrize(
    ("rows", "lag_ms"),
    [
        ([*calls(0), *blocks(0)], 2.0),
        ([*calls(0), *PRIMED, *CANCELLED, *TRIED_AGAIN, *blocks(0)], 2.0),
        ([*calls(0), *REFUSED, *blocks(0)], 30.0),
        ([*calls(0), *CONTROL, *blocks(0), block("bf16@aa", 0, 350)], 2.0),
        ([*calls(0), *DIALLED, *blocks(0)], 2.0),
        ([*calls(0), *blocks(0), *calls(1, 60.0), *blocks(1, void="it was restarted")], 2.0),
        ([*calls(0), *blocks(0), *calls(1, 60.0), *blocks(1)[1:]], 2.0),
        ([*calls(0), *blocks(0), *calls(1, 60.0), *blocks(1)], 60.0),
    ],
    ids=[
        "plain",
        "calls that are no outcome",
        "calls that failed",
        "a control",
        "connections",
        "an invalid pair",
        "half a pair",
        "two pairs",
    ],
)
def test_a_part_of_a_run_is_as_late_as_its_rows_say(
    tmp_path: Path, rows: list[Row], lag_ms: float
) -> None:
    monitor = Monitor(arms=2)
    for row in rows:
        if isinstance(row, CallRow):
            monitor.ended(row, chunks=len(row.chunks or ()))
        elif isinstance(row, BlockRow):
            monitor.closed(row)
    said = monitor.health()
    described = [run(), leg(), *(arm(name, place) for place, name in enumerate(ARMS))]
    with stored(tmp_path, [*described, *rows]) as connection:
        found = gather(connection, run_view(connection, "r1")).health
    assert said.send_lag_p99_ms == pytest.approx(lag_ms)
    assert max(each.send_lag_p99_ms or 0.0 for each in found) == said.send_lag_p99_ms
    assert max(each.coalesced_share or 0.0 for each in found) == said.coalesced_share
    assert said.is_late == (lag_ms > 5.0)


def test_a_part_that_was_late_is_late_in_the_whole_run(tmp_path: Path) -> None:
    again = [*(each for pair in range(1, 12) for each in (calls(pair), blocks(pair)))]
    moved = [replace(row, leg=2) for rows in again for row in rows]
    described = [run(), leg(), leg(2), *(arm(name, place) for place, name in enumerate(ARMS))]
    with stored(tmp_path, [*described, *calls(0, 9.3), *blocks(0), *moved]) as connection:
        found = {
            each.arm: each.send_lag_p99_ms
            for each in gather(connection, run_view(connection, "r1")).health
        }
    assert found == {"bf16": pytest.approx(0.5), "fp8": pytest.approx(9.3)}


def test_the_terminal_and_the_report_have_the_same_limits() -> None:
    policy = Policy()
    limits = (policy.max_send_lag_ms, policy.max_loop_stall_ms, policy.max_coalesced_share)
    assert limits == (health.MAX_SEND_LAG_MS, health.MAX_STALL_MS, health.MAX_COALESCED_SHARE)
    assert client.MAX_DROPPED_SHARE == health.MAX_DROPPED_SHARE
