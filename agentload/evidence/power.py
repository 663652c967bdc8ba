"""What the GPUs of each arm drew while it was played; what was not sampled, or cannot be told apart, is said and never zero."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from agentload.evidence.plays import Play, counted, tabled
from agentload.evidence.servers import Server

_QUERY: Final = """
SELECT s.arm, s.labels, avg(s.value) FROM readings AS s
JOIN plays AS p ON (p.leg, p.arm) = (s.leg, s.arm) AND s.at_ns BETWEEN p.started_ns AND p.until_ns
WHERE s.run_id = $run AND s.name = 'gpu_power_w' GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Mean draw of each arm's GPUs together, and what is to be said of the others."""

    watts: dict[str, float]
    notes: tuple[str, ...] = ()


def power(connection: duckdb.DuckDBPyConnection, run_id: str, servers: Sequence[Server], plays: Sequence[Play]) -> Power:
    """Read the draw of every arm in the plays that count."""
    with tabled(connection, counted(plays)):
        rows = connection.execute(_QUERY, {"run": run_id}).fetchall()
    drawn: dict[str, list[float]] = {}
    split: set[str] = set()
    for arm, labels, mean in rows:
        drawn.setdefault(arm, []).append(mean)
        if labels is not None and "mig" in json.loads(labels):
            split.add(arm)
    watts, notes = {}, []
    for server in servers:
        seen = drawn.get(server.arm, [])
        wanted = (server.gpu_count or 1) * server.replicas
        if server.arm in split:
            notes.append(f"{server.arm}: its GPU is split (MIG), and what one part of it draws is not told: energy is not known")
        elif len(seen) == wanted:
            watts[server.arm] = sum(seen)
        elif seen:
            told = f"the power of {len(seen)} GPUs was sampled where it has {wanted}"
            notes.append(f"{server.arm}: {told}: say gpus, or its gpu_ids")
    if silent := [server.arm for server in servers if server.arm not in drawn]:
        how = "gpu_metrics names an exporter, nvidia-ml-py asks this machine"
        notes.append(f"no GPU power was sampled on {', '.join(silent)}: energy is not known ({how})")
    return Power(watts=watts, notes=tuple(notes))
