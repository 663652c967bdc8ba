"""Find journals: next to the database, a folder for each run, a file for each part or worker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agentload.errors import StoreError
from agentload.model.rows import Row, RunRow
from agentload.store.codec import Damage
from agentload.store.journal import Reader, read

DATABASE: Final = "agentload.duckdb"
"""Database of a run that names none."""
RAW: Final = ".raw.jsonl.zst"


def journal_folder(database: Path, run_id: str) -> Path:
    """Return the folder of a run's journals: `agentload.journal/RUN` next to `agentload.duckdb`."""
    return database.with_suffix(".journal") / run_id


def worker_journals(leg: Path, workers: int) -> tuple[Path, ...]:
    """Return the workers' journals, such as `leg001-2.journal`, of the part's journal *leg*.

    Their names sort before `leg001.journal`, so they are loaded before it ends their blocks.
    """
    return tuple(
        leg.with_name(f"{leg.stem}-{number}{leg.suffix}") for number in range(1, workers + 1)
    )


def journals(database: Path, run_id: str) -> tuple[Path, ...]:
    """List a run's journals in order, except those whose writer was killed before a row."""
    return tuple(
        path
        for path in sorted(journal_folder(database, run_id).glob("*.journal"))
        if _is_begun(path)
    )


def journal_rows(
    database: Path,
    run_id: str,
    *,
    kinds: tuple[type[Row], ...] | None = None,
    damaged: Callable[[Damage], None] | None = None,
) -> Iterator[Row]:
    """Yield the rows of a run's journals, of these *kinds* alone or of all.

    Damage is passed to *damaged*, or raises `StoreError`.
    """
    for path in journals(database, run_id):
        yield from read(path, kinds=kinds, damaged=damaged)


def began(database: Path, run_id: str) -> RunRow | None:
    """Return how a run was described when it began; None where its journals do not say."""
    rows = journal_rows(database, run_id, kinds=(RunRow,), damaged=lambda _: None)
    return next((row for row in rows if isinstance(row, RunRow)), None)


def raw_files(database: Path, run_id: str) -> tuple[Path, ...]:
    """List the files with the raw bytes of a run's calls, if the replay kept them."""
    return tuple(sorted(journal_folder(database, run_id).glob(f"*{RAW}")))


def journalled_runs(database: Path) -> tuple[str, ...]:
    """List the runs with journals next to this database, loaded or not."""
    root = database.with_suffix(".journal")
    if root.is_dir():
        return tuple(
            sorted(folder.name for folder in root.iterdir() if journals(database, folder.name))
        )
    return ()


def _is_begun(journal: Path) -> bool:
    """Return whether a journal holds more than its header."""
    try:
        return next(Reader(journal, followed=True).frames(), None) is not None
    except StoreError:  # damaged or of another version: its reader reports that
        return True
