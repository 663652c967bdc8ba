"""Where a run's journals lie: beside its database, so that whoever has the one finds the other."""

from __future__ import annotations

from pathlib import Path


def journal_folder(database: Path, run_id: str) -> Path:
    """Return the folder of a run's journals, one file a leg and worker."""
    return database.with_name(database.name + ".journals") / run_id


def journals(database: Path, run_id: str) -> tuple[Path, ...]:
    """List a run's journals in the order in which they were begun."""
    return tuple(sorted(journal_folder(database, run_id).glob("*.journal")))
