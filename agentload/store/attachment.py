"""Attach files to the one DuckDB of this process, for as long as they are open.

DuckDB builds its library of functions for each database that is opened by itself, which takes ten
times as long as opening the file. Here a process builds that library once, in memory. Whoever
opens a file gets a connection of its own in which the file is the database; readers of one file
share its attachment. The last one detaches it, so that other processes find it closed.
"""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

import duckdb

# The store may run during a measurement, so it stays small: the largest reports fit into these.
THREADS: Final = min(4, os.cpu_count() or 1)
MEMORY: Final = "1GB"

_ONE_AT_A_TIME: Final = Lock()


def _in_memory() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": THREADS, "memory_limit": MEMORY})


@dataclass(slots=True, kw_only=True)
class _Attachment:
    name: str
    users: int = 0


@dataclass(slots=True, kw_only=True)
class _Library:
    main: duckdb.DuckDBPyConnection = field(default_factory=_in_memory)
    attachments: dict[tuple[str, bool], _Attachment] = field(default_factory=dict)
    count: int = 0


@cache
def _library() -> _Library:
    return _Library()


# DuckDB's threads are not there in a forked process,
# and what is open at the end is reported as leaked.
os.register_at_fork(before=_library.cache_clear)
atexit.register(_library.cache_clear)


@contextmanager
def attach(path: Path, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a file in a connection of its own; raise `duckdb.Error` if that is impossible."""
    key = (os.path.realpath(path), read_only)
    with _ONE_AT_A_TIME:
        library = _library()
        attachment = library.attachments.get(key)
        if attachment is None:
            attachment = _attachment(library, path, read_only=read_only)
            library.attachments[key] = attachment
        attachment.users += 1
        connection = library.main.cursor()
    try:
        connection.execute(f"USE {attachment.name}")
        yield connection
    finally:
        connection.close()
        with _ONE_AT_A_TIME:
            attachment.users -= 1
            if not attachment.users:
                del library.attachments[key]
                _detach(library, attachment)


def _attachment(library: _Library, path: Path, *, read_only: bool) -> _Attachment:
    library.count += 1
    name = f"file_{library.count}"
    quoted = str(path).replace("'", "''")
    mode = "READ_ONLY" if read_only else "READ_WRITE"
    # Without the prefix, DuckDB opens data files (by
    # extension) as a view in an in-memory database.
    library.main.execute(f"ATTACH 'duckdb:{quoted}' AS {name} ({mode})")
    return _Attachment(name=name)


def _detach(library: _Library, attachment: _Attachment) -> None:
    """Detach a file; where that fails, as on a full disk, build a new library for the next one."""
    try:
        library.main.execute(f"DETACH {attachment.name}")
    except duckdb.Error:
        _library.cache_clear()
