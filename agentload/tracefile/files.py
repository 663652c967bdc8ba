"""Read and write trace files, plain or compressed, or standard input and output.

The header is read at once, each session when the iteration reaches it.
"""

import hashlib
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shlex import quote
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Final, Literal

import zstandard

from agentload import documents
from agentload.errors import TraceError
from agentload.model.trace import Session, Trace
from agentload.model.walk import again
from agentload.tracefile import codec
from agentload.tracefile.codec import LineError

STDIN: Final = "-"
"""Name of standard input where it is read, of standard output where it is written."""
TYPED: Final = "standard input"
"""Name of standard input in messages."""
# twice as slow as the default and a fifth smaller; writing is bound by making sessions anyway
_LEVEL: Final = 9
_DUCKDB: Final = b"DUCK"
"""What DuckDB writes behind the first eight bytes of a file."""


class LineSource:
    """Lines that can be read repeatedly; standard input is copied to a temporary file."""

    def __init__(self, path: Path | str) -> None:
        self.name = TYPED if str(path) == STDIN else str(path)
        self._path = Path(path)
        if str(path) == STDIN:
            # Lives as long as this object.
            self._kept = NamedTemporaryFile(prefix="agentload-")  # noqa: SIM115
            copyfileobj(sys.stdin.buffer, self._kept)
            self._kept.flush()
            self._path = Path(self._kept.name)

    def lines(self) -> Iterator[bytes]:
        """Yield lines with their newline; the last one may lack it."""
        try:
            yield from documents.lines(documents.chunks(self._path), at=self.name)
        except documents.DAMAGED as error:
            raise TraceError(
                f"{self.name}: damaged or cut short: {error}", hint=_test_of(self.name)
            ) from error
        except OSError as error:
            raise TraceError(
                f"{self.name}: {error.strerror}",
                hint="agentload trace generate WORKLOAD --out FILE",
            ) from error


SMALL: Final = 12 << 20
"""Most bytes of a trace that stays in memory, because a run iterates over it many times.

A day of 100,000 calls is smaller; sessions take six times their bytes.
"""


@again
def _sessions(
    source: LineSource,
    prefixes: Container[str],
    ending: Literal["strict", "lenient"],
    kept: list[tuple[Session, ...]],
) -> Iterator[Session]:
    """Yield the sessions of a file; *kept* holds those of a small one for the next time."""
    if kept:
        yield from kept[0]
        return
    seen: list[Session] = []
    size = 0
    for number, line in enumerate(source.lines(), start=1):
        if number == 1 or line.isspace():
            continue
        try:
            session = codec.session(line, number=number)
            if session.prefix is not None and session.prefix not in prefixes:
                raise LineError(f"prefix: the header has no '{session.prefix}'")
            yield session
            size = size + len(line)
            if size <= SMALL:
                seen.append(session)
            elif seen:
                seen.clear()
        except LineError as error:
            if line.endswith(b"\n"):
                raise _error_at(source, number, error) from error
            if ending == "strict":
                hint = "the file was cut short; --lenient skips this line"
                raise TraceError(
                    f"{source.name}:{number}: the last line is truncated: {error}", hint=hint
                ) from error
    if size <= SMALL:
        kept.append(tuple(seen))


def read(path: Path | str, *, lenient: bool = False) -> Trace:
    """Read a trace file, plain, gzip or zstd, or standard input for `-`.

    *lenient* skips a last line that was cut short. Raises `TraceError` with `path:line`.
    """
    source = LineSource(path)
    try:
        first = next(source.lines(), b"")
        if first[8:12] == _DUCKDB:
            hint = None if source.name == TYPED else f"agentload advise {quote(source.name)}"
            raise LineError("a database of runs, not a trace", hint=hint)
        header = codec.header(first)
    except LineError as error:
        raise _error_at(source, 1, error) from error
    return Trace(
        header=header,
        sessions=_sessions(source, header.prefixes, "lenient" if lenient else "strict", []),
    )


def digest(path: Path | str) -> str:
    """Return the SHA-256 of a trace's lines, equal for a file and its compressed copy."""
    seen = hashlib.sha256()
    for line in LineSource(path).lines():
        seen.update(line)
    return seen.hexdigest()


def _error_at(source: LineSource, number: int, error: LineError) -> TraceError:
    """Return the error of a line, with the file and the line's number."""
    return TraceError(
        f"{source.name}:{number}: {error}", hint=error.hint or _look_at(source.name, number)
    )


def _test_of(name: str) -> str:
    if name == TYPED:
        return "send it once more, whole"
    if name.endswith(".gz"):
        return f"gzip --test {name}"
    return f"zstd --test {name}"


def _look_at(name: str, number: int) -> str:
    if name == TYPED:
        return f"keep it in a file, and look at line {number}"
    if name.endswith((".zst", ".gz")):
        expand = "zcat" if name.endswith(".gz") else "zstdcat"
        shown = f"{expand} {name} | sed -n {number}p shows the line"
        return f"{shown}; fix it, or write the trace again"
    return f"sed -n {number}p {name} shows the line; fix it, or delete it: sed -i {number}d {name}"


def lines(trace: Trace) -> Iterator[bytes]:
    """Yield a trace's lines."""
    sessions = iter(trace.sessions)
    # Made before the header: an unreadable source leaves no header behind.
    first = [codec.session_line(session) for session in islice(sessions, 1)]
    yield codec.header_line(trace.header)
    yield from first
    for session in sessions:
        yield codec.session_line(session)


def write(path: Path | str, trace: Trace) -> None:
    """Write a trace, as `write_lines` does."""
    write_lines(path, lines(trace))


def write_lines(path: Path | str, found: Iterable[bytes]) -> None:
    """Write lines to a file, compressed if its name ends in `.zst`, or to standard output for `-`.

    A file appears under its name only when it is complete.
    """
    if str(path) == STDIN:
        sys.stdout.buffer.writelines(found)
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    if path.exists() and not path.is_file():  # a device or a named pipe cannot be replaced
        with path.open("wb") as file:
            file.writelines(found)
        return
    in_the_way = next((each for each in path.parents if each.is_file()), None)
    if in_the_way is not None:
        raise TraceError(
            f"{path}: '{in_the_way}' is a file, not a folder", hint="name a file in a folder"
        )
    if not path.parent.is_dir():
        raise TraceError(f"{path}: no folder '{path.parent}'", hint=f"mkdir -p {path.parent}")
    with appearing(path) as file:
        if path.suffix == ".zst":
            with zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(
                file, closefd=False
            ) as packed:
                for line in found:
                    packed.write(line)
        else:
            file.writelines(found)


@contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its place at *path* once it is complete, and is gone otherwise."""
    partial = path.with_name(path.name + ".part")
    # Of an earlier process that was killed; or a link that another user laid out for us.
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
