"""What was done of a model of a matrix so far, kept in the model's folder after every step; and who may work in a matrix's folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
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
    asked: str
    """What it measures, without where: a step that asks something else is another."""
    pairs: int | None = None
    settled: str = ""
    """As the step said it."""
    seconds: float
    code: int
    said: str | None = None
    """What was wrong, in its own words."""
    before: int = 0
    """Pairs of its run that are of an earlier sweep, which asked something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A server that does not start, or is not what it should be."""

    said: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A model's steps and its servers' faults, by their names."""

    steps: Mapping[str, Done] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """Of the configurations that its run began without, or could not begin with."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """What its run is of, each as a digest (`origin.origin`)."""

    def with_step(self, name: str, done: Done) -> State:
        """Return the state after a step."""
        return replace(self, steps={**self.steps, name: done})

    def with_fault(self, name: str, fault: Fault) -> State:
        """Return the state after a server was found not to start."""
        return replace(self, faults={**self.faults, name: fault})


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
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    fresh.replace(path)


@contextmanager
def alone_in(folder: Path) -> Iterator[int]:
    """Hold a matrix's folder; raise UsageError where somebody else does.

    The kernel lets go of it with the last process that has what is yielded: a verb that outlives a matrix which was killed holds it on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{folder}: another `agentload matrix` works there, or a verb of one that was killed",
                hint=f"wait for it, end it (fuser {folder}/.lock names it), or another --out",
            ) from error
        yield fd
    finally:
        os.close(fd)
