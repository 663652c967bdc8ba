"""Where journals lie: beside their database, a folder a run, a file a leg and worker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agentload.errors import StoreError
from agentload.store.journal import Reader

RAW: Final = ".raw.jsonl.zst"


def journal_folder(database: Path, run_id: str) -> Path:
    """Return the folder of a run's journals: `agentload.journal/RUN` beside `agentload.duckdb`."""
    return database.with_suffix(".journal") / run_id


def worker_journals(leg: Path, workers: int) -> tuple[Path, ...]:
    """Return where the workers of a leg write: `leg001-2.journal`, which is loaded before the `leg001.journal` that says what is whole."""
    return tuple(leg.with_name(f"{leg.stem}-{number}{leg.suffix}") for number in range(1, workers + 1))


def journals(database: Path, run_id: str) -> tuple[Path, ...]:
    """List a run's journals in order of their legs; one whose writer was killed before its first row is none."""
    return tuple(path for path in sorted(journal_folder(database, run_id).glob("*.journal")) if _is_begun(path))


def raw_files(database: Path, run_id: str) -> tuple[Path, ...]:
    """List the files with the bytes of a run's calls, where a replay was asked to keep them."""
    return tuple(sorted(journal_folder(database, run_id).glob(f"*{RAW}")))


def journalled_runs(database: Path) -> tuple[str, ...]:
    """List the runs that have journals beside this database, loaded or not."""
    root = database.with_suffix(".journal")
    return tuple(sorted(folder.name for folder in root.iterdir() if journals(database, folder.name))) if root.is_dir() else ()


def _is_begun(journal: Path) -> bool:
    """Tell whether a journal holds more than its head."""
    try:
        return next(Reader(journal, followed=True).frames(), None) is not None
    except StoreError:  # damaged, or of another version: whoever reads it says so
        return True
