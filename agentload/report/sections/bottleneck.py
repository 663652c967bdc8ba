"""Name what an arm's turns waited for most: the first of these that its figures show.

The client, if calls left it late; the KV pool, if it preempted more than one turn in a hundred or
was full for half of the time, so that what it lost had to be computed again; the queue, if requests
waited for longer than a quarter of their time; else what most of a turn's latency is: reading the
prompt, which computes, or decoding, which reads memory.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.evidence import Calls, ClientHealth, Telemetry
from agentload.report import format as say

LATE: Final = 0.1
"""Share of the median TTFT by which a call may leave the client late."""
PREEMPTED: Final = 0.01
"""Preemptions a turn from which on the pool is what turns wait for."""
FULL: Final = 0.5
"""Share of the time with the pool full from which on it is what turns wait for."""
QUEUED: Final = 0.25
"""Share of a request's time in the server's queue from which on the queue is what it waits for."""


def bottleneck(
    calls: Sequence[Calls], server: Telemetry | None, health: ClientHealth | None
) -> str | None:
    """Return the bottleneck with its evidence; None where no turn ended well or took time."""
    ttft_ms, turn_ms = np.zeros(0), np.zeros(0)
    for each in calls:
        ended = each.ok & np.isfinite(each.ttft_ms) & np.isfinite(each.turn_ms)
        ttft_ms = np.append(ttft_ms, each.ttft_ms[ended])
        turn_ms = np.append(turn_ms, each.turn_ms[ended])
    if not turn_ms.sum():
        return None
    lag_ms = None if health is None else health.send_lag_p99_ms
    if lag_ms is not None and lag_ms > LATE * float(np.median(ttft_ms)):
        return f"client, {say.duration(lag_ms)} late"
    if server is not None and (waited := _of_server(server, len(ttft_ms))):
        return waited
    before = float(ttft_ms.sum() / turn_ms.sum())
    if before > 1 / 2:
        return f"compute, {say.percent(before)} prefill"
    return f"bandwidth, {say.percent(1 - before)} decoding"


def _of_server(server: Telemetry, turns: int) -> str | None:
    """Return the pool or the queue, if turns waited for it."""
    preempted = (server.preemptions or 0.0) / turns
    if preempted > PREEMPTED:
        return f"KV pool, {say.significant(preempted)} preemptions a turn"
    full = server.pool_filled_share
    if full is not None and full > FULL:
        return f"KV pool, full {say.percent(full)}"
    queued = _queued_share(server)
    if queued is None or queued <= QUEUED:
        return None
    return f"queue, {say.percent(queued)} waiting"


def _queued_share(server: Telemetry) -> float | None:
    """Return which share of a request's time its server's queue takes; None if it does not say."""
    took = {each.name: each.mean_ms for each in server.phases}
    if "queue" not in took or not took.get("answer"):
        return None
    return took["queue"] / took["answer"]
