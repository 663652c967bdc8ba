"""For how long the GPUs of each arm were slowed while it was played, by their own reasons, and their clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from agentload.evidence.plays import Play, counted, tabled

# Bits of NVML's clocks event reasons (nvml.h), which DCGM hands on.
SLOWED: Final = 0x8 | 0x20 | 0x40 | 0x80  # hardware slowdown, heat by software, heat by hardware, power brake
CAPPED: Final = 0x4  # the limit of its power

# A step waits for the slowest GPU: the one that was slowed most counts.
_QUERY: Final = """
WITH each_gpu AS (
    SELECT s.arm, s.labels,
        avg((s.value::BIGINT & $slowed <> 0)::INTEGER) FILTER (s.name = 'gpu_throttle_reasons') AS slowed,
        avg((s.value::BIGINT & $capped <> 0)::INTEGER) FILTER (s.name = 'gpu_throttle_reasons') AS capped,
        median(s.value) FILTER (s.name = 'gpu_clock_mhz') AS clock
    FROM readings AS s JOIN plays AS p ON (p.leg, p.arm) = (s.leg, s.arm) AND s.at_ns BETWEEN p.started_ns AND p.until_ns
    WHERE s.run_id = $run AND s.name IN ('gpu_throttle_reasons', 'gpu_clock_mhz')
    GROUP BY ALL
)
SELECT arm, max(slowed), max(capped), min(clock) FROM each_gpu GROUP BY arm
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Shares of the time under load, and the clock of the slowest GPU."""

    slowed: float | None = None
    capped: float | None = None
    mhz: float | None = None


def clocks(connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[Play]) -> Mapping[str, Clocks]:
    """Read by arm how its GPUs ran in the plays that count; an arm whose GPUs say nothing is left out."""
    with tabled(connection, counted(plays)):
        rows = connection.execute(_QUERY, {"run": run_id, "slowed": SLOWED, "capped": CAPPED}).fetchall()
    return {arm: Clocks(slowed=slowed, capped=capped, mhz=mhz) for arm, slowed, capped, mhz in rows}
