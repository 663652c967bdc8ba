"""A job's state as a text file for Prometheus' node exporter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from agentload.watch.alarms import Alarm, Kind
from agentload.watch.history import Execution, executions

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def prometheus(job: str, history: Sequence[Execution], alarms: Sequence[Alarm]) -> str:
    """Return gauges of the latest execution; labels are the job, and the series or the kind of alarm."""
    registry = CollectorRegistry()
    last = Gauge("agentload_watch_last_execution_timestamp_seconds", "When a job was last executed", ["job"], registry=registry)
    usable = Gauge("agentload_watch_last_usable_timestamp_seconds", "When a job last gave usable figures", ["job"], registry=registry)
    change = Gauge(
        "agentload_watch_change_ratio", "Change against the reference run, 0.05 is 5 % slower", ["job", "arm", "metric"], registry=registry
    )
    standing = Gauge("agentload_watch_alarms", "Alarms that are open", ["job", "kind"], registry=registry)
    ran = executions(history)
    if ran:
        last.labels(job).set(ran[-1].started_ns / 1e9)
    done = [each for each in history if each.outcome == "done"]
    if done:
        usable.labels(job).set(done[-1].started_ns / 1e9)
        for each in done[-1].detail.changes:
            change.labels(job, each.arm, each.metric).set(math.expm1(each.log_ratio))
    for kind in KINDS:
        standing.labels(job, kind).set(sum(each.kind == kind and each.is_open for each in alarms))
    return generate_latest(registry).decode()
