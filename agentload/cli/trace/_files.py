"""Open the trace that was named; write what was made of it, and say so."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentload.builtin import find
from agentload.cli.trace._lines import counted
from agentload.model.trace import Session, Trace
from agentload.tracefile import read, write
from agentload.tracefile.files import STDIN


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
