"""The client has to keep up: late sends, stalls and merged reads are ours, not the server's."""

from __future__ import annotations

import math

from advisor.evidence import ClientHealth, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "client"


def _faults(health: ClientHealth, policy: Policy) -> list[tuple[str, float, float, str]]:
    limits = (
        (health.send_lag_p99_ms, policy.max_send_lag_ms, "ms", "requests left {value:.1f} ms late (p99)"),
        (health.loop_stall_max_ms, policy.max_loop_stall_ms, "ms", "the event loop stalled for {value:.0f} ms"),
        (health.coalesced_share, policy.max_coalesced_share, "", "{value:.0%} of the reads held several chunks under one stamp"),
    )
    return [
        (told.format(value=value), value, limit, unit)
        for value, limit, unit, told in limits
        if value is not None and math.isfinite(value) and value > limit
    ]


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm (or one for the run); "not observed" when nobody watched the client."""
    if not evidence.health:
        return (Gate(name=NAME, status="not observed", message="nobody watched the client"),)
    gates = []
    for health in evidence.health:
        faults = _faults(health, policy)
        if not faults:
            lag = "unknown" if health.send_lag_p99_ms is None else f"{health.send_lag_p99_ms:.2f} ms"
            gates.append(
                Gate(name=NAME, status="pass", arm=health.arm, message=f"send lag p99 {lag}", observed=health.send_lag_p99_ms, unit="ms")
            )
        for told, value, limit, unit in faults:
            gates.append(
                Gate(
                    name=NAME,
                    status="fail",
                    arm=health.arm,
                    message=f"{told}: lower the load or use a quieter machine",
                    observed=value,
                    limit=limit,
                    unit=unit,
                    spoils=("ttft", "itl", "turn", "capacity"),
                )
            )
    return tuple(gates)
