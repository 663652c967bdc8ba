"""The client has to keep up: late sends, stalls and merged reads are ours, not the server's."""

import math
from collections.abc import Iterator
from typing import Final

from advisor import words
from advisor.evidence import ClientHealth, Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "client"
MAX_DROPPED_SHARE: Final = 0.01  # above, a p99 is that of calls whose stamps are user space's


APART: Final = "whose times cannot be separated"
LIGHTER: Final = "reduce the load or use an idle machine"


def _faults(health: ClientHealth, policy: Policy) -> list[tuple[str, float, float, str]]:
    limits = (
        (
            health.send_lag_p99_ms,
            policy.max_send_lag_ms,
            "ms",
            f"the load generator sent requests {{value:.1f}} ms late (p99): {LIGHTER}",
        ),
        (
            health.loop_stall_max_ms,
            policy.max_loop_stall_ms,
            "ms",
            f"the event loop stalled for {{value:.0f}} ms: {LIGHTER}",
        ),
        (
            health.coalesced_share,
            policy.max_coalesced_share,
            "",
            (
                f"the load generator fell behind: {{value:.0%}} of its reads held several "
                f"chunks, {APART}: {LIGHTER}"
            ),
        ),
        (
            health.clock_steps,
            0.0,
            "",
            (
                "the wall clock was stepped {value:.0f} times, which kernel stamps follow: let "
                "it settle first"
            ),
        ),
        (
            health.dropped_share,
            MAX_DROPPED_SHARE,
            "",
            "the kernel gave {value:.1%} of reads no stamp: see agentload doctor",
        ),
    )
    return [
        (told.format(value=value), value, limit, unit)
        for value, limit, unit, told in limits
        if value is not None and math.isfinite(value) and value > limit
    ]


def _lag_ms(health: ClientHealth) -> float:
    return health.send_lag_p99_ms or 0.0


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm (or one for the run), that of the latest requests first; "not
    observed" without data.
    """
    if not evidence.health:
        yield Gate(name=NAME, message="client load was not monitored")
    # A reason quotes the first: it is as late as the whole run is said to be.
    for health in sorted(evidence.health, key=_lag_ms, reverse=True):
        faults, lag = _faults(health, policy), health.send_lag_p99_ms
        if not faults:
            told = f"send lag p99 {'unknown' if lag is None else words.ms(lag)}"
            yield Gate(
                name=NAME, status="pass", arm=health.arm, message=told, observed=lag, unit="ms"
            )
        for told, value, limit, unit in faults:
            yield Gate(
                name=NAME,
                status="fail",
                arm=health.arm,
                message=told,
                observed=value,
                limit=limit,
                unit=unit,
                spoils=TIMES,
            )
