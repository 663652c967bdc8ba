"""Read what the GPUs of each arm did while it was played: power, throttling and memory.

What was not sampled, or cannot be attributed, is named in a note and never zero.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb

from agentload.evidence.plays import PlayedBlock, plays_table, valid_plays
from agentload.evidence.servers import ArmServer
from agentload.evidence.view import RunView
from agentload.model.record import Record
from agentload.store.runs import sample_names

# Bits of NVML's clocks event reasons (nvml.h), which DCGM reports unchanged.
# hardware slowdown, heat by software, heat by hardware, power brake
SLOWED: Final = 0x8 | 0x20 | 0x40 | 0x80
CAPPED: Final = 0x4  # the limit of its power

_SAMPLED: Final = """
WITH sampled AS (
    SELECT s.arm, s.labels, s.name, s.value FROM readings AS s
    JOIN plays AS p ON (p.leg, p.arm) = (s.leg, s.arm) AND s.at_ns BETWEEN p.started_ns
        AND p.ended_ns
    WHERE s.run_id = $run AND list_contains($names, s.name)
)
"""
# A sum of floats depends on its order, and that of parallel threads on chance. A plain average
# is planned without the order that it is given.
_POWER: Final = """
SELECT arm, labels, list_avg(list(value ORDER BY value)) FROM sampled GROUP BY ALL ORDER BY ALL
"""
# A step waits for the slowest GPU: the one that was slowed most counts.
_CLOCKS: Final = """
SELECT arm, max(slowed), max(capped), min(mhz) FROM (
    SELECT arm, median(value) FILTER (name = 'gpu_clock_mhz') AS mhz,
        avg((try_cast(value AS BIGINT) & $slowed <> 0)::INTEGER)
            FILTER (name = 'gpu_throttle_reasons') AS slowed,
        avg((try_cast(value AS BIGINT) & $capped <> 0)::INTEGER)
            FILTER (name = 'gpu_throttle_reasons') AS capped
    FROM sampled GROUP BY arm, labels
) GROUP BY arm
"""
# Each GPU's own peak: they are sampled one after the other, so that no instant has them all.
_MEMORY: Final = (
    "SELECT arm, sum(peak) FROM (SELECT arm, max(value) AS peak FROM sampled GROUP BY arm, "
    "labels) GROUP BY arm ORDER BY arm"
)


class Clocks(Record):
    """How one arm's GPUs were slowed, as shares of the time under load, and the lowest clock.

    `slowed`: by heat or a hardware brake; `capped`: at the limit of their power.
    """

    slowed: float | None = None
    capped: float | None = None
    mhz: float | None = None


def power(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    servers: Sequence[ArmServer],
    played: Sequence[PlayedBlock],
) -> tuple[dict[str, float], list[str]]:
    """Return the mean watts of each arm's GPUs together, and notes on arms without them.

    Only plays that count are looked at.
    """
    rows = _sampled(_POWER, connection, run_id, valid_plays(played), ["gpu_power_w"])
    drawn: dict[str, list[float]] = {}
    for arm, _, mean in rows:
        drawn.setdefault(arm, []).append(mean)
    split = {arm for arm, labels, _ in rows if labels is not None and "mig" in json.loads(labels)}
    watts: dict[str, float] = {}
    notes: list[str] = []
    for arm, wanted in {each.arm: _gpus(each) for each in servers}.items():
        seen = drawn.get(arm, [])
        if arm in split:
            notes.append(
                f"{arm}: its GPU is split (MIG), and the draw of one part is not reported: "
                "energy is not known"
            )
        elif len(seen) == wanted:
            watts[arm] = sum(seen)
        elif seen:
            notes.append(
                f"{arm}: the power of {len(seen)} GPUs was sampled where it has {wanted}: "
                "set gpus, or its gpu_ids"
            )
    silent = [server.arm for server in servers if server.arm not in drawn]
    if silent:
        how = "gpu_metrics names an exporter, nvidia-ml-py asks this machine"
        notes.append(
            f"no GPU power was sampled on {', '.join(silent)}: energy is not known ({how})"
        )
    return watts, notes


def _gpus(server: ArmServer) -> int:
    return (server.gpu_count or 1) * server.replicas


def clocks(
    connection: duckdb.DuckDBPyConnection, run_id: str, played: Sequence[PlayedBlock]
) -> Mapping[str, Clocks]:
    """Read how each arm's GPUs ran in the plays that count; arms not sampled are left out."""
    names = ["gpu_throttle_reasons", "gpu_clock_mhz"]
    found = _sampled(
        _CLOCKS, connection, run_id, valid_plays(played), names, slowed=SLOWED, capped=CAPPED
    )
    return {
        arm: Clocks(slowed=slowed, capped=capped, mhz=mhz) for arm, slowed, capped, mhz in found
    }


def gpu_memory(connection: duckdb.DuckDBPyConnection, view: RunView) -> dict[str, float]:
    """Return the most bytes that each arm's GPUs held; arms without samples are left out."""
    played = [play for play in view.plays if not play.is_void]
    found = _sampled(_MEMORY, connection, view.name, played, ["gpu_memory_bytes"])
    return {arm: float(peak) for arm, peak in found}


def _sampled(
    query: str,
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    played: Sequence[PlayedBlock],
    names: Sequence[str],
    **bits: int,
) -> list[tuple[Any, ...]]:
    """Run *query* on the samples of these names that were taken in plays."""
    if sample_names(connection, run_id).isdisjoint(names):
        return []
    with plays_table(connection, played):
        return connection.execute(
            _SAMPLED + query, {"run": run_id, "names": names, **bits}
        ).fetchall()
