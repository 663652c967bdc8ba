"""Steps of a capacity search, as they were stored beside a run."""

from __future__ import annotations

import json
from collections.abc import Collection

import duckdb

from advisor.evidence import CapacityPoint

PROBE = "capacity"
FULL = 0.95  # a pool this full evicts for every prompt that comes
EVICTED = 0.02  # of the prompt tokens: more than the share moves from one load to the next while everything fits
_QUERY = "SELECT arm, settings, detail FROM probes WHERE run_id = ? AND probe = ? ORDER BY arm, at_ns, settings"


def capacity(connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]) -> tuple[CapacityPoint, ...]:
    """Read the steps of a run's arms."""
    rows = connection.execute(_QUERY, [run_id, PROBE]).fetchall()
    seen = [(arm, json.loads(settings), json.loads(detail)) for arm, settings, detail in rows if arm in arms and detail]
    best = {name: max((detail["hit_rate"] or 0.0 for arm, _, detail in seen if arm == name), default=0.0) for name in arms}
    return tuple(_point(arm, settings, detail, best[arm]) for arm, settings, detail in seen)


def _point(arm: str, settings: dict[str, object], detail: dict[str, float | None], best_hit_rate: float) -> CapacityPoint:
    peak, preemptions, hit_rate = detail.get("peak_kv_usage"), detail.get("preemptions"), detail.get("hit_rate")
    # Servers count cached pages that nobody uses as free; that they were evicted shows in the prefixes that are no longer found.
    evicted = hit_rate is not None and hit_rate < best_hit_rate - EVICTED
    return CapacityPoint(
        arm=arm,
        agents=int(str(settings["agents"])),
        turns=int(detail["turns"] or 0),
        within_slo=int(detail["within"] or 0),
        minutes=float(detail["minutes"] or 0.0),
        pool_filled=None if peak is None else peak >= FULL or bool(preemptions) or evicted,
        preemptions=preemptions,
        hit_rate=hit_rate,
        output_tokens_per_s=detail.get("output_tokens_per_s"),
    )
