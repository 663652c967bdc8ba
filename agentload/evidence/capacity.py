"""Steps of a capacity search, as they were stored beside a run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import duckdb

from advisor.evidence import CapacityPoint

PROBE = "capacity"
FULL = 0.95  # a pool this full evicts for every prompt that comes
EVICTED = 0.02  # of the prompt tokens: more than the share moves from one load to the next while everything fits
_QUERY = "SELECT arm, settings, detail FROM probes WHERE run_id = ? AND probe = ? ORDER BY arm, at_ns, settings"
_HELD = """
SELECT arm, settings ->> 'workload', max((settings ->> 'agents')::INT) FILTER (detail ->> 'held' = 'true'),
    min((settings ->> 'agents')::INT) FILTER (detail ->> 'held' = 'false')
FROM probes WHERE run_id = ? AND probe = ? AND detail ->> 'held' IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a search for concurrency ended with: the most sessions without trouble, and the fewest with it. None: its own bound."""

    arm: str
    workload: str | None
    holds: int | None
    breaks: int | None


def held(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Held, ...]:
    """Read what the searches beside a run found."""
    rows = connection.execute(_HELD, [run_id, PROBE]).fetchall()
    return tuple(Held(arm=arm, workload=workload, holds=holds, breaks=breaks) for arm, workload, holds, breaks in rows)


def capacity(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str], workloads: Collection[str]
) -> tuple[CapacityPoint, ...]:
    """Read the steps of a run's arms; a search with sessions of one class is that class's, where the run has others as well."""
    rows = connection.execute(_QUERY, [run_id, PROBE]).fetchall()
    seen = [(arm, json.loads(settings), json.loads(detail)) for arm, settings, detail in rows if arm in arms and detail]
    best: dict[tuple[str, object], float] = {}
    for arm, settings, detail in seen:
        key = arm, settings.get("workload")
        best[key] = max(best.get(key, 0.0), detail["hit_rate"] or 0.0)
    return tuple(
        _point(arm, settings, detail, best[arm, settings.get("workload")], workloads if len(workloads) > 1 else ())
        for arm, settings, detail in seen
    )


def _point(
    arm: str, settings: dict[str, object], detail: dict[str, float | None], best_hit_rate: float, workloads: Collection[str]
) -> CapacityPoint:
    peak, preemptions, hit_rate = detail.get("peak_kv_usage"), detail.get("preemptions"), detail.get("hit_rate")
    # Servers count cached pages that nobody uses as free; that they were evicted shows in the prefixes that are no longer found.
    evicted = hit_rate is not None and hit_rate < best_hit_rate - EVICTED
    return CapacityPoint(
        arm=arm,
        workload=str(named) if (named := settings.get("workload")) in workloads else None,
        agents=int(str(settings["agents"])),
        turns=int(detail["turns"] or 0),
        within_slo=int(detail["within"] or 0),
        minutes=float(detail["minutes"] or 0.0),
        pool_filled=None if peak is None else peak >= FULL or bool(preemptions) or evicted,
        preemptions=preemptions,
        hit_rate=hit_rate,
        output_tokens_per_s=detail.get("output_tokens_per_s"),
    )
