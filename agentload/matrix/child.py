"""Run one study in a process of its own: what it says is passed on and kept, and it can be asked to stop."""

from __future__ import annotations

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

from agentload.study.document import yaml_text
from agentload.study.kinds import Replay, Study

DRAIN_S: Final = 300.0
"""From the first request to stop until the second, and as long again until it is killed: what is in flight may be a long answer."""
LOOK_S: Final = 0.2
INTERRUPTED: Final = 130
PROGRAM: Final = (sys.executable, "-m", "agentload")


@dataclass(slots=True)
class Stops:
    """How often we were asked to stop, by Ctrl-C or a signal."""

    count: int = 0

    @contextmanager
    def heard(self) -> Iterator[Stops]:
        """Count signals in place of dying of them, for as long as the block lasts."""

        def hear(_number: int, _frame: FrameType | None) -> None:
            self.count += 1

        ends = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, hear) for number in ends}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(slots=True, kw_only=True)
class Ended:
    """How a verb ended."""

    code: int
    is_timed_out: bool
    error: str | None = None
    """What it said was wrong, with its hint."""


def run(
    study: Study,
    *,
    database: Path,
    run: str | None,
    said: Path,
    until: float,
    stops: Stops,
    told: Callable[[str], None],
    lock: int | None = None,
) -> Ended:
    """Run a study and return how it ended; from the instant *until* on, or when we are asked, it is asked to stop.

    It lies beside what it *said*, goes on with the *run* of a replay, and adds to it what anything else finds.

    It has a process group of its own, so that Ctrl-C reaches us alone and is passed on once. It has *lock* open as well:
    should we be killed, what it locks is held until the verb has ended too.
    """
    said.parent.mkdir(parents=True, exist_ok=True)
    written = said.with_suffix(".yaml")
    written.write_text(yaml_text(study), encoding="utf-8")
    joined = () if run is None else ("--resume" if isinstance(study, Replay) else "--into", run)
    arguments = ("run", str(written), "--db", str(database), *joined)
    errors: list[str] = []

    def listen(stream: IO[str], file: IO[str]) -> None:
        for line in stream:
            file.write(line)
            file.flush()
            if line.startswith(("error:", "hint:")):
                errors.append(line.strip())
            elif line.strip():
                told(line.rstrip())

    with said.open("a", encoding="utf-8") as file, _started(arguments, file, lock) as process:
        assert process.stderr is not None, "a pipe"
        listener = threading.Thread(target=listen, args=(process.stderr, file), daemon=True)
        listener.start()
        is_timed_out = _wait(process, until, stops)
        listener.join(timeout=10)
    # Asked before it could listen, it ends of the signal itself.
    code = INTERRUPTED if process.returncode == -signal.SIGINT else process.returncode
    return Ended(code=code, is_timed_out=is_timed_out, error="; ".join(errors) or None)


def _started(arguments: Sequence[str], printed: IO[str], lock: int | None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
        pass_fds=() if lock is None else (lock,),
    )


def _wait(process: subprocess.Popen[str], until: float, stops: Stops) -> bool:
    """Wait for the end; tell whether the time was over before that."""
    passed, asked_s, is_timed_out = 0, 0.0, False
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            break
        now = time.monotonic()
        is_timed_out = is_timed_out or (not stops.count and now > until)
        is_deaf = bool(asked_s) and now - asked_s > DRAIN_S
        if is_deaf or stops.count + is_timed_out > passed:
            passed, asked_s = passed + 1, now
            process.send_signal(signal.SIGKILL if is_deaf and passed > 2 else signal.SIGINT)
    return is_timed_out
