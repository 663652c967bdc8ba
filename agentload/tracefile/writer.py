"""Write trace files, a session at a time."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final

import zstandard

from agentload.errors import TraceError
from agentload.model.trace import Trace
from agentload.tracefile import encode
from agentload.tracefile.source import STDIN

_LEVEL: Final = 9  # twice as slow as the default and a fifth smaller; writing is bound by making sessions anyway


def lines(trace: Trace) -> Iterator[bytes]:
    """Yield a trace's lines."""
    sessions = iter(trace.sessions)
    first = [encode.session(session) for session in islice(sessions, 1)]  # a source that cannot be read leaves no header behind
    yield encode.header(trace.header)
    yield from first
    for session in sessions:
        yield encode.session(session)


def write(path: Path | str, trace: Trace) -> None:
    """Write a trace; `-` is standard output, a name that ends in `.zst` is compressed.

    A file appears under its name only when it is complete.
    """
    if str(path) == STDIN:
        sys.stdout.buffer.writelines(lines(trace))
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    if path.exists() and not path.is_file():  # a device or a named pipe cannot be replaced
        with path.open("wb") as file:
            file.writelines(lines(trace))
        return
    if not path.parent.is_dir():
        raise TraceError(f"{path}: there is no folder '{path.parent}'", hint=f"mkdir -p {path.parent}")
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            if path.suffix == ".zst":
                _compress(file, trace)
            else:
                file.writelines(lines(trace))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _compress(file: IO[bytes], trace: Trace) -> None:
    with zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(file, closefd=False) as packed:
        for line in lines(trace):
            packed.write(line)
