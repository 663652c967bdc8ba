"""Keep what was found apart from a replay beside a run, for its report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from agentload.evidence.capacity import next_search
from agentload.experiment.search.capacity import Found, rows
from agentload.model.rows import ProbeRow
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder


def keep(rows: Iterable[ProbeRow], database: Path, *, run_id: str, name: str) -> None:
    """Write the rows into a journal of their own, and load it."""
    path = journal_folder(database, run_id) / f"{name}.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    load([path], database)


def keep_searches(
    found: Sequence[Found], database: Path, *, run: str, at_ns: int | None, seconds: float, slo: str, classes: Collection[str]
) -> None:
    """Keep searches beside a run, where they take the place of those before; a simulated one has no date, only its place behind them."""
    if at_ns is None:
        with reading(database) as connection:
            at_ns = next_search(connection, run)
    steps = (row for each in found for row in rows(each, run_id=run, at_ns=at_ns, seconds=seconds, slo=slo, classes=classes))
    keep(steps, database, run_id=run, name="capacity")
