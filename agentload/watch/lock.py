"""One execution of a job at a time, on this machine: the kernel lets go of the lock with the process, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_path(database: Path, job: str) -> Path:
    """Return the file that an execution holds."""
    return database.with_suffix(".journal") / f"watch-{job}.lock"


@contextmanager
def locked(database: Path, job: str) -> Iterator[bool]:
    """Hold the job's lock; False when another execution does."""
    path = lock_path(database, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
