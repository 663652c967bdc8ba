"""What was done of a matrix so far, kept in its folder after every step."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from agentload.errors import StoreError, UsageError

Outcome: TypeAlias = Literal["done", "stopped", "failed"]
"""stopped: its share of the time was over; what it has is kept, and it goes on when the matrix does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a step ended."""

    outcome: Outcome
    command: str
    """Without the run that it belongs to: a step that says something else is another."""
    seconds: float
    code: int
    said: str | None = None
    """What was wrong, in its own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A server that does not start, or is not what it should be."""

    launch: str
    """What started it: another command is worth another try."""
    said: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Steps by `MODEL/STEP`, faults by `MODEL/CONFIG`."""

    steps: dict[str, Done] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)

    def with_step(self, key: str, done: Done) -> State:
        """Return the state after a step."""
        return replace(self, steps={**self.steps, key: done})

    def with_fault(self, key: str, fault: Fault) -> State:
        """Return the state after a server was found not to start."""
        return replace(self, faults={**self.faults, key: fault})


def read_state(path: Path) -> State:
    """Read what was done; nothing where there is no file yet. Raises StoreError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{path}: not a matrix's state: {error}", hint="another --out, or delete the file: steps that are done are done again"
        ) from error


def write_state(path: Path, state: State) -> None:
    """Write it whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    fresh.replace(path)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a matrix's folder; the kernel lets go of it with the process. Raises UsageError where another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{folder}: another `agentload matrix` works there", hint="wait for it, or another --out") from error
        yield
    finally:
        os.close(fd)
