"""Find active runs and follow their journals.

The database has a run only up to its last finished block pair.
"""

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from agentload.errors import StoreError
from agentload.model.record import Record
from agentload.model.rows import Row
from agentload.store.journal import is_held, read
from agentload.ui.progress import Fold, RunProgress

SWEEP_S: Final = 10.0
"""Seconds between two looks at the folders of all runs: an old one may have been resumed."""
PATIENCE_S: Final = 0.5
"""Seconds that one request reads long journals for; the next request reads further."""
CHUNK: Final = 2000
"""Number of rows that are read between two looks at the clock."""
LATEST: Final = 50
"""How many of the latest folders are searched for inactive runs."""
# Journals of parts that measure, of workers and of added answers. Others are written at once:
# `is_held` takes the lock for an instant, and their writer could fail on it.
_LIVE_JOURNAL: Final = re.compile(r"(?:leg|answers)(\d+)(?:-(\d+))?\.journal")


@dataclass(slots=True)
class _Followed:
    """One run's journals, read so far."""

    folder: Path
    fold: Fold = field(default_factory=Fold)
    offsets: dict[Path, int] = field(default_factory=dict)
    read_ns: dict[Path, int] = field(default_factory=dict)
    """Modification time (ns) of each journal when it was last read to its end."""

    def catch_up(self, *, until_s: float) -> bool:
        """Read what was written since; False if time runs out first."""
        for path in _journals(self.folder):
            written_ns = path.stat().st_mtime_ns
            if self.read_ns.get(path) == written_ns:
                continue
            before = self.offsets.get(path, 0)
            reader = read(path, offset=before, damaged=lambda _: None, followed=True)
            rows: Iterator[Row] = reader
            while part := list(islice(rows, CHUNK)):
                self.fold.take(part)
                self.offsets[path] = reader.offset
                if len(part) == CHUNK and time.monotonic() > until_s:
                    return False
            self.read_ns[path] = written_ns
        return True


class ActiveRun(Record):
    """The state of an active run."""

    run_id: str
    progress: RunProgress | None
    """None until its journal describes the run."""
    is_current: bool
    """False while a long journal is being read for the first time."""


class LiveRuns:
    """The runs with journals next to one database; thread-safe."""

    def __init__(self, database: Path) -> None:
        self._root = database.with_suffix(".journal")
        self._lock = threading.Lock()
        self._idle: dict[str, int] = {}
        """Modification time (ns) of each folder when it was found idle."""
        self._followed: dict[str, _Followed] = {}
        self._swept_s = -SWEEP_S
        self._root_ns = 0
        self._running: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        """All folders, latest name first."""

    def running(self) -> tuple[str, ...]:
        """List the active runs, latest first."""
        with self._lock:
            return self._refresh()

    def idle(self) -> tuple[str, ...]:
        """List inactive runs with a journal among the LATEST latest folders, latest name first."""
        with self._lock:
            running = self._refresh()
            latest = [name for name in self._names[:LATEST] if name not in running]
            return tuple(name for name in latest if _journals(self._root / name))

    def progress(self) -> tuple[ActiveRun, ...]:
        """Return the progress of each active run."""
        with self._lock:
            until_s = time.monotonic() + PATIENCE_S
            running = self._refresh()
            for name in self._followed.keys() - set(running):
                del self._followed[name]
            return tuple(self._progress(name, until_s) for name in running)

    def _progress(self, name: str, until_s: float) -> ActiveRun:
        followed = self._followed.setdefault(name, _Followed(self._root / name))
        try:
            is_current = followed.catch_up(until_s=until_s)
        except (StoreError, OSError):  # of another version, or just deleted
            return ActiveRun(run_id=name, progress=None, is_current=False)
        return ActiveRun(run_id=name, progress=followed.fold.progress(), is_current=is_current)

    def _refresh(self) -> tuple[str, ...]:
        """Look for active runs again, as far as folders may have changed."""
        root_ns = _mtime(self._root)
        if root_ns == self._root_ns and time.monotonic() - self._swept_s < SWEEP_S:
            self._running = tuple(name for name in self._running if _is_running(self._root / name))
            return self._running
        self._swept_s = time.monotonic()
        self._root_ns = root_ns
        if not self._root.is_dir():
            self._names = ()
            self._running = ()
            return ()
        with os.scandir(self._root) as entries:
            inside = [each for each in entries if each.is_dir(follow_symlinks=False)]
        folders = {each.name: each.stat().st_mtime_ns for each in inside}
        self._names = tuple(sorted(folders, reverse=True))
        # Starting a part of a run changes its folder: an unchanged folder is still idle.
        running = []
        for name, changed_ns in folders.items():
            if self._idle.get(name) == changed_ns:
                continue
            if _is_running(self._root / name):
                running.append(name)
            elif time.time_ns() - changed_ns > SWEEP_S * 1e9:  # new ones may be about to start
                self._idle[name] = changed_ns
        self._running = tuple(sorted(running, reverse=True))
        return self._running


def _is_running(folder: Path) -> bool:
    return any(map(is_held, reversed(_journals(folder))))


def _journals(folder: Path) -> list[Path]:
    """List a run's journals part by part.

    A part's own journal, which sets the clock, comes before its workers'.
    """
    try:
        with os.scandir(folder) as entries:
            matches = [_LIVE_JOURNAL.fullmatch(each.name) for each in entries]
    except OSError:
        return []
    found = [match for match in matches if match is not None]
    found.sort(key=_place)
    return [folder / each[0] for each in found]


def _place(journal: re.Match[str]) -> tuple[int, int, str]:
    """Return by what journals are ordered: their part, then their worker."""
    part, worker = journal.groups(default="0")
    return int(part), int(worker), journal[0]


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
