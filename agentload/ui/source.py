"""Hold the query of a request, and one database.

The database is opened as briefly as possible, and answers come from memory while the file is
unchanged.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import duckdb

from agentload.errors import AgentloadError, StoreError
from agentload.model.record import Record
from agentload.store.database import reading, refusal
from agentload.ui.live import LiveRuns

PATIENCE_S: Final = 2.0
"""A page waits this long for a writer, then shows its last answer or asks to come back."""
KEPT: Final = 64

K = TypeVar("K")
T = TypeVar("T")
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class NotFoundError(AgentloadError):
    """Report a page, run or job that does not exist."""


class Query(Record):
    """A page, its subject, and its query parameters."""

    page: str
    name: str = ""
    """The run or job of the path."""
    other: str = ""
    """The second run of a comparison."""
    words: tuple[tuple[str, str], ...] = ()
    journalled: tuple[str, ...] = ()
    """Inactive runs with a journal, which the database may not have yet."""
    planned: tuple[str, ...] = ()
    """Jobs of the jobs file, which the database may not have yet."""
    today_ns: int = 0
    """When this day began: alarms are muted until a day."""

    def word(self, key: str) -> str:
        """Return a query parameter, or an empty string."""
        return next((value for name, value in self.words if name == key), "").strip()

    def number(self, key: str, *, otherwise: int) -> int:
        """Return a query parameter as a number; *otherwise* where none was typed."""
        text = self.word(key)
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        return otherwise

    @property
    def page_number(self) -> int:
        """Return which page of a list is wanted, from 1."""
        return max(1, self.number("page", otherwise=1))


class CachedAnswer(Record, Generic[T]):
    """The answer of the database."""

    value: T
    stale_ns: int | None = None
    """When it was read, if the database is being written and could not be read again."""


class _Known(Record, Generic[T], kw_only=False):
    stamp: Stamp
    at_ns: int
    value: T


class LatestFew(Generic[K, T]):
    """The latest few values by key, each with the database's stamp; thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[K, _Known[T]] = OrderedDict()

    def get(self, key: K) -> _Known[T] | None:
        """Return the value of a key and keep it longer."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: K, stamp: Stamp, value: T) -> None:
        """Keep a value and drop the least recently used one."""
        with self._lock:
            self._known[key] = _Known(stamp, time.time_ns(), value)
            self._known.move_to_end(key)
            if len(self._known) > self._size:
                self._known.popitem(last=False)


class DatabaseFile:
    """Answer queries on one database; thread-safe."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.live = LiveRuns(path)
        self._kept = LatestFew[Hashable, Any](KEPT)

    def stamp(self) -> Stamp:
        """Return a stamp that changes with the file."""
        return tuple(map(_stamp, (self.path, Path(f"{self.path}.wal"))))

    def ask(
        self, key: Hashable, question: Callable[[duckdb.DuckDBPyConnection], T]
    ) -> CachedAnswer[T]:
        """Run a query, or return the cached answer for its key.

        Raise `StoreError` if the database cannot be read and never was.
        """
        stamp = self.stamp()
        kept = self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            return CachedAnswer(value=kept.value)
        try:
            with reading(self.path, patience_s=PATIENCE_S) as connection:
                # Read again under the lock: no writer is active now.
                stamp, value = self.stamp(), question(connection)
        except duckdb.Error as error:
            raise refusal(self.path, error) from error
        except StoreError:
            if kept is None or not self.path.is_file():
                raise
            return CachedAnswer(value=kept.value, stale_ns=kept.at_ns)
        self._kept.put(key, stamp, value)
        return CachedAnswer(value=value)


def sources(databases: tuple[Path, ...]) -> dict[str, DatabaseFile]:
    """Name each database by its file, numbered where two names are equal."""
    found: dict[str, DatabaseFile] = {}
    for path in dict.fromkeys(Path(os.path.realpath(each)) for each in databases):
        name = path.stem
        numbered = (f"{path.stem}-{number}" for number in count(2))
        while name in found:
            name = next(numbered)
        found[name] = DatabaseFile(name, path)
    return found


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
