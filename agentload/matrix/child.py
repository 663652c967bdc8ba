"""Carry out one study in a child process, as the command line does.

Its output is passed on and kept, and it can be asked to stop.
"""

import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Final

from agentload.run.place import StudyPlace
from agentload.study.document import yaml_text
from agentload.study.kinds import Study

DRAIN_S: Final = 300.0
"""Seconds of grace after each of two interrupts, then the child is killed.

An answer in flight may be long.
"""
LOOK_S: Final = 0.2
INTERRUPTED: Final = 130
ASK: Final = signal.SIGTERM
"""Signal that asks the child to stop.

Not SIGINT: what a script starts in its background ignores that signal, and so do the children,
until they handle it themselves.
"""
PROGRAM: Final = (sys.executable, "-m", "agentload")


@dataclass(slots=True)
class Stops:
    """Count how many times Ctrl-C or a signal asked us to stop."""

    count: int = 0

    @contextmanager
    def caught(self) -> "Iterator[Stops]":
        """Count signals instead of dying from them, inside the block."""

        def count(_number: int, _frame: FrameType | None) -> None:
            self.count += 1

        before = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, count)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(slots=True, kw_only=True)
class Exit:
    """Report how a child process ended."""

    code: int
    is_timed_out: bool = False
    error: str | None = None


def carry_out(
    study: Study,
    place: StudyPlace,
    *,
    output: Path,
    until: float,
    stops: Stops,
    say: Callable[[str], None],
    lock: int | None = None,
) -> Exit:
    """Carry out a study and return how it ended; interrupt the child at *until* or when we are.

    Its output goes to *output* and the study itself next to it. The child has its own process
    group, so Ctrl-C reaches us alone and is passed on once. It inherits *lock*: if we are killed,
    the lock is held until the child has ended too.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    written = output.with_suffix(".yaml")
    written.write_text(yaml_text(study), encoding="utf-8")
    words = ["run", str(written), "--db", str(place.database)]
    for option, run in (("--resume", place.resume), ("--into", place.into)):
        words += [] if run is None else [option, run]
    errors: list[str] = []

    def listen(stream: IO[str], file: IO[str]) -> None:
        for line in stream:
            file.write(line)
            file.flush()
            if line.startswith(("error:", "hint:")):
                errors.append(line.strip())
            elif line.strip():
                say(line.rstrip())

    with output.open("a", encoding="utf-8") as file, _started(words, file, lock) as process:
        assert process.stderr is not None, "a pipe"
        listener = threading.Thread(target=listen, args=(process.stderr, file), daemon=True)
        listener.start()
        is_timed_out = _wait(process, until, stops)
        listener.join(timeout=10)
    # A child that is stopped before it installs its handler dies from the signal
    # itself; one that is installing it dies from Python's KeyboardInterrupt.
    code = INTERRUPTED if process.returncode in (-ASK, -signal.SIGINT) else process.returncode
    return Exit(code=code, is_timed_out=is_timed_out, error="; ".join(errors) or None)


def _started(words: Sequence[str], printed: IO[str], lock: int | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
        pass_fds=() if lock is None else (lock,),
    )


def _wait(process: subprocess.Popen[str], until: float, stops: Stops) -> bool:
    """Wait for the child; return whether its time ran out first."""
    asked = 0  # times that the child was asked to stop
    asked_s = math.inf  # and when last
    is_timed_out = False
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            break
        now = time.monotonic()
        is_timed_out = is_timed_out or (not stops.count and now > until)
        is_deaf = now - asked_s > DRAIN_S
        if is_deaf or stops.count + is_timed_out > asked:
            asked += 1
            asked_s = now
            process.send_signal(signal.SIGKILL if is_deaf and asked > 2 else ASK)
    return is_timed_out
