"""Combinations of features that were tried one by one, as they were stored beside a run."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

import duckdb

from advisor.evidence import Probe
from agentload.model.apart import ISOLATION

_QUERY: Final = "SELECT arm, settings, outcome, detail FROM probes WHERE run_id = ? AND probe = ? ORDER BY at_ns"


def isolation(connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]) -> tuple[Probe, ...]:
    """Read the cells of a run's arms; of one that was tried again, the last counts."""
    found: dict[tuple[str, str], Probe] = {}
    for arm, settings, outcome, detail in connection.execute(_QUERY, [run_id, ISOLATION]).fetchall():
        if arm in arms:
            found.pop((arm, settings), None)
            found[arm, settings] = Probe(
                arm=arm, **json.loads(settings), outcome=outcome, detail=json.loads(detail or "{}").get("detail", "")
            )
    return tuple(found.values())
