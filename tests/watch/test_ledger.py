"""What the ledger stores, other programs read by views."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path

import pytest

from agentload.store.database import reading
from agentload.watch import ledger
from agentload.watch.alarms import ChangeRule, alarms
from tests.watch.histories import execution, history

WORSE = history(*[0.0, 0.004, -0.003] * 4, 0.08)


def test_views_have_a_row_a_change_and_the_alarms(tmp_path: Path) -> None:
    database = tmp_path / "watch.duckdb"
    past = (*WORSE, execution(14, "failed", reason="no disk"))
    ledger.note(database, "nightly", map(ledger.execution_row, past))
    ledger.note(
        database, "nightly", ledger.alarm_rows("nightly", alarms(past, ChangeRule()), (), at_ns=0)
    )
    assert ledger.bring_in(database, "nightly") is None
    with reading(database) as connection:
        ours = connection.sql("FROM changes ORDER BY started").pl()
        told = connection.sql("FROM raised").pl()
    assert ours["outcome"].to_list() == ["done"] * 14 + ["failed"]
    assert ours["change"].to_list()[0] is None
    row = ours.row(13, named=True)
    assert (row["arm"], row["metric"], row["run_id"], row["started"]) == (
        "prod",
        "turn_ms",
        "r13",
        datetime(1970, 1, 14),  # noqa: DTZ001
    )
    assert (row["low"], row["change"], row["high"]) == pytest.approx(
        tuple(math.expm1(0.08 + z * 0.00196) for z in (-1, 0, 1))
    )
    assert told.select("kind", "metric", "closed").rows() == [("regression", "prod: turn_ms", None)]
