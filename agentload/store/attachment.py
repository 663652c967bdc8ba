"""Attach files to the one DuckDB of this process, for as long as they are open.

DuckDB builds its library of functions for each database that is opened by itself, which takes ten
times as long as opening the file. Here a process builds that library once, in memory. Whoever
opens a file gets a connection of its own in which the file is the database; readers of one file
share its attachment. The last one detaches it, so that other processes find it closed.

A file that stayed attached could be written by no other process. So Ctrl-C, which only the main
thread hears, never cuts a file's opening or its end: both run in a thread of their own.
"""

import atexit
import os
import secrets
import tempfile
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Final, TypeAlias

import duckdb

# The store may run during a measurement, so it stays small: the largest reports fit into these.
THREADS: Final = min(4, os.cpu_count() or 1)
MEMORY: Final = "1GB"

WAKE_S: Final = 0.05

_Key: TypeAlias = tuple[str, bool]
"""Real path of a file, and whether it is attached for reading alone."""

_ONE_AT_A_TIME: Final = Lock()


@dataclass(slots=True, kw_only=True)
class _Attachment:
    name: str
    users: int = 0


class _Library:
    """The DuckDB of this process, and the files that are attached to it."""

    def __init__(self) -> None:
        self.attachments: dict[_Key, _Attachment] = {}
        self.count = 0
        spilled = Path(tempfile.gettempdir()) / f"agentload-{secrets.token_hex(8)}.tmp"
        self.main = duckdb.connect(
            config={
                "threads": THREADS,
                "memory_limit": MEMORY,
                "temp_directory": str(spilled),  # made when a query needs it, gone with it
            }
        )


@cache
def _library() -> _Library:
    return _Library()


def _before_fork() -> None:
    _ONE_AT_A_TIME.acquire()
    _library.cache_clear()


# DuckDB's threads are not there in a forked process,
# and what is open at the end is reported as leaked.
os.register_at_fork(
    before=_before_fork,
    after_in_parent=_ONE_AT_A_TIME.release,
    after_in_child=_ONE_AT_A_TIME.release,
)
atexit.register(_library.cache_clear)


@contextmanager
def attach(path: Path, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a file in a connection of its own; raise `duckdb.Error` if that is impossible."""
    opening = _Opening(key=(os.path.realpath(path), read_only))
    try:
        _carry_out(opening.begin)
        yield opening.connection
    finally:
        try:
            _carry_out(opening.end)
        except BaseException:
            _carry_out(opening.end)  # Ctrl-C came before it could begin
            raise


@dataclass(slots=True, kw_only=True)
class _Opening:
    """One opening of a file: a connection, and a share in the file's attachment."""

    key: _Key
    connection: duckdb.DuckDBPyConnection = field(init=False)
    _library: _Library = field(init=False)
    _attachment: _Attachment | None = None

    def begin(self) -> None:
        """Attach the file, unless somebody has it open, and connect to it."""
        with _ONE_AT_A_TIME:
            self._library = library = _library()
            attachment = library.attachments.get(self.key)
            if attachment is None:
                attachment = library.attachments[self.key] = _attachment(library, self.key)
            attachment.users += 1
            self._attachment = attachment
            self.connection = library.main.cursor()
        self.connection.execute(f"USE {attachment.name}")

    def end(self) -> None:
        """Close the connection, and detach the file if nobody else has it open."""
        attachment, self._attachment = self._attachment, None
        if attachment is None:
            return
        with suppress(duckdb.Error, AttributeError):  # it may have begun without a connection
            self.connection.close()
        with _ONE_AT_A_TIME:
            attachment.users -= 1
            if not attachment.users:
                del self._library.attachments[self.key]
                _detach(self._library, attachment)


def _attachment(library: _Library, key: _Key) -> _Attachment:
    path, is_read_only = key
    library.count += 1
    name = f"file_{library.count}"
    quoted = path.replace("'", "''")
    mode = "READ_ONLY" if is_read_only else "READ_WRITE"
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


def _carry_out(step: Callable[[], None]) -> None:
    """Carry a step out to its end; Ctrl-C that comes meanwhile is raised behind it."""
    if current_thread() is not main_thread():
        step()
        return
    first, working = Lock(), Lock()
    left, ended, failures = [step], list[bool](), list[BaseException]()

    def run() -> None:
        if not first.acquire(blocking=False):
            return  # a thread was started already when Ctrl-C came
        try:
            # This thread keeps no object of DuckDB's after the step: one that is freed here while
            # the interpreter ends aborts the process.
            left.pop()()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            failures.append(error)
        ended.append(True)
        working.release()

    working.acquire()
    stopped: BaseException | None = None
    while not ended:
        try:
            start_new_thread(run, ())
            # Not for ever: Ctrl-C may come between taking the lock and leaving the loop.
            while not ended:
                working.acquire(timeout=WAKE_S)
        except BaseException as error:  # noqa: BLE001 - Ctrl-C, or what a signal's handler raises
            stopped = error
    for failure in (stopped, *failures):
        if failure is not None:
            raise failure
