"""Combinations of features that were tried one by one, as they were stored beside a run."""

import json
from collections.abc import Collection
from typing import Any, cast

import duckdb

from advisor.evidence import Probe
from agentload.model.apart import ISOLATION
from agentload.model.rows import ProbeRow
from agentload.store import tables


def isolation(connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]) -> tuple[Probe, ...]:
    """Read the cells of a run's arms; of one that was tried again, the last counts."""
    found: dict[tuple[str, str], Probe] = {}
    for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=ISOLATION):
        if row.arm in arms:
            found.pop((row.arm, row.settings), None)
            detail = json.loads(row.detail or "{}").get("detail", "")
            found[row.arm, row.settings] = Probe(arm=row.arm, **json.loads(row.settings), outcome=cast(Any, row.outcome), detail=detail)
    return tuple(found.values())
