"""Keep what was found apart from a replay beside a run, for its report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentload.model.rows import ProbeRow
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
