"""What a browser asked for, and one database: opened for as short as can be, answered from memory while the file has not changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import duckdb

from agentload.errors import AgentloadError, StoreError
from agentload.store.database import reading, refusal
from agentload.ui.live import Live

PATIENCE_S: Final = 2.0
"""A page waits for a writer no longer: it shows what it knew, or asks to come back."""
KEPT: Final = 64

K = TypeVar("K")
T = TypeVar("T")
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class NotFoundError(AgentloadError):
    """Report a page, run or job that there is none of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A page, whom it is about, and the words of its query."""

    page: str
    name: str = ""
    """The run or job in the path."""
    other: str = ""
    """The second run of a comparison."""
    words: tuple[tuple[str, str], ...] = ()
    journalled: tuple[str, ...] = ()
    """Runs that have a journal and are not on: the database may not have them yet."""

    def word(self, key: str) -> str:
        """Return a word of the query, empty where it is not there."""
        return next((value for name, value in self.words if name == key), "").strip()

    def number(self, key: str) -> int:
        """Return a number of the query from 1 on; 1 where it is none."""
        text = self.word(key)
        return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What the database said."""

    value: T
    stale_ns: int | None = None
    """When it was read, if the database is being written now and could not be asked again."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    stamp: Stamp
    at_ns: int
    value: T


class Kept(Generic[K, T]):
    """The latest few values by key, each with what the database was stamped with. Calls may come from several threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[K, _Known[T]] = OrderedDict()

    def get(self, key: K) -> _Known[T] | None:
        """Return what is known by a key, which is kept for longer now."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: K, stamp: Stamp, value: T) -> None:
        """Keep a value, and let go of the one that was asked for longest ago."""
        with self._lock:
            self._known[key] = _Known(stamp, time.time_ns(), value)
            self._known.move_to_end(key)
            if len(self._known) > self._size:
                self._known.popitem(last=False)


class Source:
    """Answer questions about one database. Calls may come from several threads."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.live = Live(path)
        self._kept = Kept[Hashable, Any](KEPT)

    def stamp(self) -> Stamp:
        """Return what differs when the file was changed."""
        return tuple(_stamp(path) for path in (self.path, Path(f"{self.path}.wal")))

    def ask(self, key: Hashable, question: Callable[[duckdb.DuckDBPyConnection], T]) -> Answer[T]:
        """Answer a question, the same for equal keys; raise `StoreError` if the database cannot be read and never was."""
        stamp, kept = self.stamp(), self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            return Answer(value=kept.value)
        try:
            with reading(self.path, patience_s=PATIENCE_S) as connection:
                # Read anew behind the lock: no writer is at work now.
                stamp, value = self.stamp(), question(connection)
        except duckdb.Error as error:
            raise refusal(self.path, error) from error
        except StoreError:
            if kept is None or not self.path.is_file():
                raise
            return Answer(value=kept.value, stale_ns=kept.at_ns)
        self._kept.put(key, stamp, value)
        return Answer(value=value)


def sources(databases: tuple[Path, ...]) -> dict[str, Source]:
    """Name each database by its file, with a number where two are called the same."""
    found: dict[str, Source] = {}
    for path in dict.fromkeys(each.resolve() for each in databases):
        stem, name, number = path.stem, path.stem, 1
        while name in found:
            number += 1
            name = f"{stem}-{number}"
        found[name] = Source(name, path)
    return found


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
