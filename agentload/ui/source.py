"""One database as the pages see it: opened for as short as can be, answered from memory while the file has not changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import duckdb

from agentload.errors import StoreError
from agentload.store.database import reading, refusal
from agentload.ui.live import Live

PATIENCE_S: Final = 2.0
"""A page waits for a writer no longer: it shows what it knew, or asks to come back."""
KEPT: Final = 64

T = TypeVar("T")
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What the database said."""

    value: T
    stale_ns: int | None = None
    """When it was read, if the database is being written now and could not be asked again."""


class Source:
    """Answer questions about one database. Calls may come from several threads."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.live = Live(path)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Stamp, int, Any]] = OrderedDict()

    def stamp(self) -> Stamp:
        """Return what differs when the file was changed."""
        return tuple(_stamp(path) for path in (self.path, Path(f"{self.path}.wal")))

    def ask(self, key: Hashable, question: Callable[[duckdb.DuckDBPyConnection], T]) -> Answer[T]:
        """Answer a question, the same for equal keys; raise `StoreError` if the database cannot be read and never was."""
        stamp = self.stamp()
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if kept is not None and kept[0] == stamp:
            return Answer(value=kept[2])
        try:
            with reading(self.path, patience_s=PATIENCE_S) as connection:
                # Read anew behind the lock: no writer is at work now.
                stamp, value = self.stamp(), question(connection)
        except duckdb.Error as error:
            raise refusal(self.path, error) from error
        except StoreError:
            if kept is None or not self.path.is_file():
                raise
            return Answer(value=kept[2], stale_ns=kept[1])
        with self._lock:
            self._kept[key] = (stamp, time.time_ns(), value)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
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
