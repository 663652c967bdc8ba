"""The client has to keep up: late sends, stalls and merged reads are ours, not the server's."""

import math
from collections.abc import Iterator

from advisor.evidence import ClientHealth, Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "client"


def _faults(health: ClientHealth, policy: Policy) -> list[tuple[str, float, float, str]]:
    limits = (
        (health.send_lag_p99_ms, policy.max_send_lag_ms, "ms", "the load generator sent requests {value:.1f} ms late (p99)"),
        (health.loop_stall_max_ms, policy.max_loop_stall_ms, "ms", "the event loop stalled for {value:.0f} ms"),
        (
            health.coalesced_share,
            policy.max_coalesced_share,
            "",
            "the load generator fell behind: {value:.0%} of its reads held several chunks, whose times cannot be separated",
        ),
    )
    return [
        (told.format(value=value), value, limit, unit)
        for value, limit, unit, told in limits
        if value is not None and math.isfinite(value) and value > limit
    ]


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm (or one for the run); "not observed" without data."""
    if not evidence.health:
        yield Gate(name=NAME, message="client load was not monitored")
    for health in evidence.health:
        faults, lag = _faults(health, policy), health.send_lag_p99_ms
        if not faults:
            told = f"send lag p99 {'unknown' if lag is None else f'{lag:.2f} ms'}"
            yield Gate(name=NAME, status="pass", arm=health.arm, message=told, observed=lag, unit="ms")
        for told, value, limit, unit in faults:
            why = f"{told}: reduce the load or use an idle machine"
            yield Gate(name=NAME, status="fail", arm=health.arm, message=why, observed=value, limit=limit, unit=unit, spoils=TIMES)
