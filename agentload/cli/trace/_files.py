"""Open the trace that was named; write what was made of it, and say so."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from agentload.builtin import find
from agentload.cli.trace._lines import counted
from agentload.model.trace import Session, Trace
from agentload.tracefile import read, write
from agentload.tracefile.source import STDIN


def opened(trace: str, *, lenient: bool = False) -> Trace:
    """Open a file, a shipped trace by its name, or standard input."""
    return read(trace if trace == STDIN else find("traces", trace), lenient=lenient)


def write_trace(out: str, trace: Trace) -> None:
    """Write a trace, and say on stderr what is in the file."""
    sessions = _Counted(trace.sessions)
    write(out, Trace(header=trace.header, sessions=sessions))
    if out != STDIN:
        print(f"{out}: {counted(sessions.sessions, 'session')}, {counted(sessions.turns, 'call')}", file=sys.stderr)


@dataclass(slots=True)
class _Counted:
    found: Iterable[Session]
    sessions: int = field(default=0, init=False)
    turns: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Session]:
        for session in self.found:
            self.sessions += 1
            self.turns += len(session.turns)
            yield session


def write_lines(out: str, lines: Iterable[bytes]) -> None:
    """Write to `out`; `-` is stdout, a name that ends in .zst is compressed."""
    if out == STDIN:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            if path.suffix == ".zst":
                with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
                    for line in lines:
                        packed.write(line)
            else:
                file.writelines(lines)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
