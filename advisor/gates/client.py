"""The client has to keep up: late sends, stalls and merged reads are ours, not the server's."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from advisor import words
from advisor.evidence import ClientHealth, Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "client"
MAX_DROPPED_SHARE: Final = 0.01  # above, a p99 may be that of reads that user space stamped
LESS_LOAD: Final = "reduce the load or use an idle machine"


class _Measure(NamedTuple):
    """One measure of the client with its limit, and what a value beyond that means."""

    value: float | None
    limit: float
    text: str  # a format, whose {value} is filled in
    unit: str = ""


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield for each arm (None: the whole run) its failures, or one gate that passed.

    The arm whose requests were sent latest comes first; without data one gate was not observed.
    """
    if not evidence.health:
        yield Gate(name=NAME, status="not observed", message="client load was not monitored")
    # A reason quotes the first gate, and a run is said to be as late as its latest arm.
    for health in sorted(evidence.health, key=_lag_ms, reverse=True):
        yield from list(_failures(health, policy)) or [_pass(health)]


def _lag_ms(health: ClientHealth) -> float:
    return health.send_lag_p99_ms or 0.0


def _pass(health: ClientHealth) -> Gate:
    lag_ms = health.send_lag_p99_ms
    lag = "unknown" if lag_ms is None else words.ms(lag_ms)
    return Gate(
        name=NAME,
        status="pass",
        arm=health.arm,
        message=f"send lag p99 {lag}",
        observed=lag_ms,
        unit="ms",
    )


def _failures(health: ClientHealth, policy: Policy) -> Iterator[Gate]:
    """Yield a failure for each measure beyond its limit."""
    for each in _measures(health, policy):
        value = each.value
        if value is None or not math.isfinite(value) or value <= each.limit:
            continue
        yield Gate(
            name=NAME,
            status="fail",
            arm=health.arm,
            message=each.text.format(value=value),
            observed=value,
            limit=each.limit,
            unit=each.unit,
            spoils=TIMES,
        )


def _measures(health: ClientHealth, policy: Policy) -> tuple[_Measure, ...]:
    return (
        _Measure(
            health.send_lag_p99_ms,
            policy.max_send_lag_ms,
            f"the load generator sent requests {{value:.1f}} ms late (p99): {LESS_LOAD}",
            "ms",
        ),
        _Measure(
            health.loop_stall_max_ms,
            policy.max_loop_stall_ms,
            f"the event loop stalled for {{value:.0f}} ms: {LESS_LOAD}",
            "ms",
        ),
        _Measure(
            health.coalesced_share,
            policy.max_coalesced_share,
            f"the load generator fell behind: {{value:.0%}} of chunks came in one read with the "
            f"one before, and their times cannot be separated: {LESS_LOAD}",
        ),
        _Measure(
            health.clock_steps,
            0.0,
            "the wall clock was stepped {value:.0f} times, which kernel stamps follow: let it "
            "settle first",
        ),
        _Measure(
            health.dropped_share,
            MAX_DROPPED_SHARE,
            "the kernel gave {value:.1%} of reads no stamp: see agentload doctor",
        ),
    )
