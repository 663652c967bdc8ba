"""Read trace files lazily: the header at once, a session when it is asked for."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agentload.errors import TraceError
from agentload.model.trace import Session, Trace
from agentload.tracefile import decode
from agentload.tracefile.decode import LineError
from agentload.tracefile.source import Source


class _Sessions:
    """The sessions of a file, read anew in each iteration."""

    def __init__(self, source: Source, ending: Literal["strict", "lenient"]) -> None:
        self._source = source
        self._ending = ending

    def __iter__(self) -> Iterator[Session]:
        for number, line in enumerate(self._source.lines(), start=1):
            if number == 1 or line.isspace():
                continue
            try:
                yield decode.session(line)
            except LineError as error:
                if line.endswith(b"\n"):
                    raise _placed(self._source, number, error) from error
                if self._ending == "strict":
                    hint = "the file was cut short; --lenient leaves this line out"
                    raise TraceError(f"{self._source.name}:{number}: the last line is truncated: {error}", hint=hint) from error


def read(path: Path | str, *, lenient: bool = False) -> Trace:
    """Read a trace file, plain or zstd, or standard input for `-`; raise `TraceError` with `path:line` for what is wrong in it.

    `lenient` leaves out a last line that was cut short.
    """
    source = Source(path)
    try:
        header = decode.header(next(source.lines(), b""))
    except LineError as error:
        raise _placed(source, 1, error) from error
    return Trace(header=header, sessions=_Sessions(source, "lenient" if lenient else "strict"))


def digest(path: Path | str) -> str:
    """Return the SHA-256 of a trace's lines: equal for a file and its compressed copy."""
    seen = hashlib.sha256()
    for line in Source(path).lines():
        seen.update(line)
    return seen.hexdigest()


def _placed(source: Source, number: int, error: LineError) -> TraceError:
    return TraceError(f"{source.name}:{number}: {error}", hint=error.hint or _look_at(source.name, number))


def _look_at(name: str, number: int) -> str:
    if name.endswith(".zst"):
        return f"zstdcat {name} | sed -n {number}p shows the line; mend it, or write the trace again"
    return f"sed -n {number}p {name} shows the line; mend it, or take it out: sed -i {number}d {name}"
