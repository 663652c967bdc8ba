"""The journal: rows appended as they are measured, so that a crash costs at most the last second.

A row is safe from

- the death of our process (`kill -9`) after `flush`, which hands
  it to the kernel; callers try `flush_if_due` twice a second;
- the death of the machine after `sync`, which waits for the disk.
  That can take tens of milliseconds, so call it between blocks, never
  inside one. `close` syncs.

Disk space is reserved ahead in large steps, so a full disk is noticed while
many seconds of rows still fit: `flush` writes them, then raises. A journal made
from rows that already exist (`ahead=0`) reserves nothing beyond them.
"""

import errno
import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from agentload.errors import StoreError
from agentload.model.rows import Row
from agentload.store import codec
from agentload.store.codec import MAGIC, Damage, Frame, frames
from agentload.store.ownership import open_locked, refuse_foreign

DUE_NS: Final = 500_000_000
"""Least time between two flushes: who tries to that often holds no row for a whole second."""
RESERVE: Final = 16 * 1024 * 1024  # about half a minute at 50,000 chunks/s
UNTOUCHED: Final = "let nothing else touch it, then resume the run"
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Writer:
    """Append rows to one journal file, as its only writer on this machine."""

    def __init__(self, path: Path, *, ahead: int = RESERVE) -> None:
        """Create the file, or continue after its last valid record.

        *ahead* bytes are reserved beyond what is written. Raises `StoreError` if
        another process writes the file.
        """
        self.path = path
        self._ahead = ahead
        self._buffer = bytearray()
        self._rows = 0
        self._flushed_ns: int | None = None
        self._fd = _locked(path)
        try:
            self._end = self._reserved = _end_of_whole(path)
            # Rows written after a torn tail would look like damage.
            os.ftruncate(self._fd, self._end)
            if self._end == 0:
                self._buffer += codec.header()
                self.flush()
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, row: Row) -> None:
        """Add one row; it is safe from `kill -9` after the next flush."""
        self._buffer += codec.record(row)
        self._rows += 1

    def flush_if_due(self, now_ns: int) -> None:
        """Flush if half a second has passed since the last flush; the caller owns the clock."""
        if self._flushed_ns is None or now_ns - self._flushed_ns >= DUE_NS:
            self._flushed_ns = now_ns
            self.flush()

    def flush(self) -> None:
        """Hand all rows to the kernel.

        Raises `StoreError` on a full disk, after writing the rows into reserved space,
        and if the file was removed, replaced or cut.
        """
        self._require_in_place()
        wanted = len(self._buffer) + self._ahead  # the write empties the buffer
        refusal = self._reserve()
        self._write()
        if refusal is not None:
            raise StoreError(
                f"{self.path}: {refusal.strerror}: the {self._rows:,} rows written so far are kept",
                hint=f"have {math.ceil(wanted / 2**20):,} MiB of disk space free, then resume "
                "the run",
            ) from refusal

    def sync(self) -> None:
        """Flush and wait for the disk; call it between blocks only."""
        self.flush()
        os.fsync(self._fd)

    def close(self) -> None:
        """Flush, release reserved space, sync and close the file."""
        if self._fd < 0:
            return
        try:
            self._require_in_place()
            self._write()
        finally:
            fd = self._fd
            self._fd = -1
            try:
                if os.fstat(fd).st_size > self._end:
                    os.ftruncate(fd, self._end)
                os.fsync(fd)
            finally:
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> None:
        try:
            while self._buffer:
                written = os.pwrite(self._fd, self._buffer, self._end)
                self._end += written
                del self._buffer[:written]
        except OSError as error:
            raise StoreError(
                f"{self.path}: {error.strerror}: {len(self._buffer):,} bytes of rows are "
                "still in memory",
                hint="free some disk space, then resume the run, or make a simulation again; "
                "what was flushed before is kept",
            ) from error

    def _require_in_place(self) -> None:
        """Raise `StoreError` if the file was removed, replaced or cut.

        A removed file is first written again from the descriptor that is still open.
        """
        try:
            own = os.fstat(self._fd)
            there = _stat(self.path)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}", hint=UNTOUCHED) from error
        if there is None:
            self._write_again()
            self._write()
            what = "was removed"
            left = f"its {self._end:,} bytes were written again"
        elif (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            what = "was replaced by another file"
            left = f"the {self._rows:,} rows that were written are not in it"
        elif own.st_size < self._end:
            what = "was cut"
            left = f"{own.st_size:,} of {self._end:,} bytes are left"
        else:
            return
        raise StoreError(f"{self.path} {what} while it was written: {left}", hint=UNTOUCHED)

    def _write_again(self) -> None:
        """Write the removed file again, from the open descriptor that still reads it."""
        try:
            fd = _locked(self.path)
            try:
                with (
                    os.fdopen(os.dup(self._fd), "rb") as gone,
                    os.fdopen(os.dup(fd), "wb") as again,
                ):
                    gone.seek(0)
                    shutil.copyfileobj(gone, again)
                os.ftruncate(fd, self._end)
                os.fsync(fd)
            except OSError:
                os.close(fd)
                self.path.unlink(missing_ok=True)
                raise
        except OSError as error:
            what = (
                f"was removed while it was written, and cannot be written again: {error.strerror}"
            )
            raise StoreError(f"{self.path} {what}", hint=UNTOUCHED) from error
        os.close(self._fd)
        self._fd = fd
        self._reserved = self._end

    def _reserve(self) -> OSError | None:
        wanted = self._end + len(self._buffer)
        if wanted + self._ahead // 2 <= self._reserved or not hasattr(os, "posix_fallocate"):
            return None
        try:
            os.posix_fallocate(self._fd, self._end, len(self._buffer) + self._ahead)
        except OSError as error:
            if error.errno in FULL:
                return error
            return None  # some file systems cannot reserve; writing will fail instead
        self._reserved = wanted + self._ahead
        return None


class Reader(Iterator[Row]):
    """Read the rows of one journal, also while it is being written."""

    def __init__(
        self,
        path: Path,
        *,
        offset: int = 0,
        kinds: tuple[type[Row], ...] | None = None,
        damaged: Callable[[Damage], None] | None = None,
        followed: bool = False,
    ) -> None:
        """Start at *offset*, where an earlier reader stopped; rows are of *kinds* alone, or of all.

        Damage is passed to *damaged*; without it, damage raises `StoreError`. *followed*
        is for a file still being written: its last record comes before space that is reserved.
        """
        self.path = path
        self.offset = offset
        """End of the last record read."""
        self.torn: Damage | None = None
        """Bytes of an incomplete record at the end: cut by a crash, or still being written."""
        self.layout: codec.Layout = {}
        self._kinds = None if kinds is None else codec.numbers(kinds)
        self._damaged = damaged
        self._followed = followed
        self._rows = self._read()

    def __next__(self) -> Row:
        return next(self._rows)

    def frames(self) -> Iterator[Frame]:
        """Yield undecoded records; `layout` names their fields."""
        with self.path.open("rb", buffering=0) as source:
            start = _start(source.read(len(MAGIC)), self.path)
            if start == 0:
                return
            records = frames(source, offset=start, followed=self._followed)
            head = next(records, None)
            if not isinstance(head, Frame):
                self.torn = head
                return
            self.layout = codec.layout(head, where=str(self.path))
            if self.offset <= head.end:
                self.offset = head.end
            else:
                records = frames(source, offset=self.offset, followed=self._followed)
            for each in records:
                if isinstance(each, Frame):
                    self.offset = each.end
                    yield each
                elif each.kind == "torn":
                    self.torn = each
                elif self._damaged is not None:
                    self._damaged(each)
                else:
                    raise StoreError(
                        f"{self.path}: damaged at byte {each.offset:,} ({each.length:,} bytes)",
                        hint="agentload runs load RUN keeps every valid record around the damage",
                    )

    def _read(self) -> Iterator[Row]:
        for each in self.frames():
            if self._kinds is not None and each.kind not in self._kinds:
                continue
            row = codec.row(each.kind, each.payload, self.layout)
            if row is not None:
                yield row


def read(
    path: Path,
    *,
    offset: int = 0,
    kinds: tuple[type[Row], ...] | None = None,
    damaged: Callable[[Damage], None] | None = None,
    followed: bool = False,
) -> Reader:
    """Return an iterator over a journal's rows.

    After the last row, `torn` is the incomplete record at the end, if any, and
    `offset` is where to continue. The arguments are those of `Reader`.
    """
    return Reader(path, offset=offset, kinds=kinds, damaged=damaged, followed=followed)


def is_held(path: Path) -> bool:
    """Return whether a process is writing this journal.

    This takes the writer's lock for an instant. A file without
    a header is left alone: its writer may be about to lock it.
    """
    try:
        with path.open("rb") as source:
            if source.read(len(MAGIC)) != MAGIC:
                return False
            fcntl.flock(source, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _locked(path: Path) -> int:
    for place in (path.parent.parent, path.parent, path):
        refuse_foreign(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = open_locked(path)
    if fd is None:
        raise StoreError(
            f"{path}: another process is writing this journal",
            hint="wait for it to finish, or stop it",
        )
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # a new file survives a machine crash only once its folder is synced
    finally:
        os.close(folder)
    return fd


def _end_of_whole(path: Path) -> int:
    """Return where the next record goes; raise `StoreError` for another version's file."""
    with path.open("rb") as source:
        head = source.read(len(codec.header()))
    if len(head.rstrip(b"\0")) < len(codec.header()) and codec.header().startswith(
        head.rstrip(b"\0")
    ):
        return 0  # new, or cut before its first row
    if head != codec.header():
        raise StoreError(f"{path}: not a journal of this version", hint="write to a new file")
    reader = Reader(path)
    for _ in reader.frames():
        pass
    return reader.offset


def _start(head: bytes, path: Path) -> int:
    if head == MAGIC:
        return len(MAGIC)
    if MAGIC.startswith(head.rstrip(b"\0")):
        return 0
    raise StoreError(
        f"{path}: not a journal of this version of agentload",
        hint="the first line must read agentload-journal/1",
    )
