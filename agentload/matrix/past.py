"""The progress of a matrix: each model's state, saved
after every step, and what its database and journals hold.
"""

import fcntl
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from agentload.errors import StoreError, UsageError
from agentload.evidence.plays import plays
from agentload.matrix.described import LeftOut
from agentload.matrix.parts import document
from agentload.matrix.steps import Part
from agentload.model.controls import is_control
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, LegRow, RunRow
from agentload.run.past import FIRST as BESIDE
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.places import journal_rows, journalled_runs, journals
from agentload.tracefile import digest

Outcome: TypeAlias = Literal["done", "stopped", "failed"]
"""stopped: out of time; what it has is kept, and it resumes with the matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a step ended."""

    outcome: Outcome
    asked: str
    """Its measurement without its place: a step that measures something else is another step."""
    pairs: int | None = None
    settled: str = ""
    """`Step.fixed` when it ran."""
    seconds: float
    code: int
    said: str | None = None
    before: int = 0
    """Pairs in its run from an earlier, different sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A server that did not start or was not what it should be."""

    said: str
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A model's steps and server faults, by name."""

    steps: Mapping[str, Done] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """Faults of configurations that the run started without or could not start with."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """What its run is made of, as digests (`origin`)."""

    def with_step(self, name: str, done: Done) -> "State":
        """Return the state after a step."""
        return replace(self, steps={**self.steps, name: done})

    def with_fault(self, name: str, fault: Fault) -> "State":
        """Return the state after a server failed to start."""
        return replace(self, faults={**self.faults, name: fault})


def read_state(path: Path) -> State:
    """Read the state; empty if there is no file yet. Raises StoreError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{path}: not a matrix's state: {error}",
            hint="use another --out, or delete the file to run its steps again",
        ) from error


def write_state(path: Path, state: State) -> None:
    """Write the state atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    fresh.replace(path)


@contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Lock a matrix's folder; raise UsageError if another process has it.

    The kernel frees the lock with the last process that has the
    yielded descriptor: a verb that outlives a killed matrix keeps it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{folder}: in use by another `agentload matrix`, or by a verb that one "
                "left running",
                hint=f"wait for it, end it (fuser {folder}/.lock names it), or use another --out",
            ) from error
        yield fd
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """A model's run and the arms it started with."""

    run: str
    arms: tuple[str, ...]


def run_of(database: Path) -> ModelRun | None:
    """Return a model's run; None before its first row is written."""
    for run in journalled_runs(database):
        for path in journals(database, run):
            # The head of a journal describes the run; the calls behind it may be a gigabyte.
            rows = list(
                takewhile(lambda row: isinstance(row, LegRow | RunRow | ArmRow), journal.read(path))
            )
            if any(isinstance(row, RunRow) for row in rows):
                arms = sorted(
                    (row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position
                )
                return ModelRun(
                    run=run, arms=tuple(row.arm for row in arms if not is_control(row.arm))
                )
    return None


def can_join(database: Path, run: str) -> bool:
    """Return whether a run can be added to; a missing database
    is rebuilt from the journals once they hold a finished block.
    """
    if not database.exists() and any(
        isinstance(row, BlockRow) and row.void is None for row in journal_rows(database, run)
    ):
        load(journals(database, run), database)
    return database.exists()


def sweep_pairs(database: Path, before: ModelRun) -> int:
    """Count the length-sweep pairs that a run has on all arms."""
    found = defaultdict(set)
    with reading(database) as connection:
        for play in plays(connection, before.run):
            if play.pair >= BESIDE and play.left_out is None:
                found[play.pair].add(play.arm)
    return sum(arms >= set(before.arms) for arms in found.values())


def is_answered(database: Path, run: str) -> bool:
    """Return whether any question of a run was answered."""
    return any(
        isinstance(row, AnswerRow) and row.right is not None for row in journal_rows(database, run)
    )


SERVER: Final = frozenset(
    {
        "model",
        "aliases",
        "extra_body",
        "force_lengths",
        "expect",
        "tensor_parallel",
        "data_parallel",
        "launch",
    }
)
"""What an arms file says of a server except its place and price, which may change during a run."""


def origin(part: Part) -> dict[str, str]:
    """Return digests of what a model's run is made of; its traces must have been laid out."""
    replay = part.steps[0]
    traces = {each.name: digest(part.places.trace(each.name)) for each in part.matrix.workloads}
    return {
        "reference": part.arms[0],
        "load": _digest(replay.essence),
        **{f"workload {name}": found for name, found in traces.items()},
        **{f"server of {arm}": _digest(server) for arm, server in _servers(part).items()},
    }


def differences(began: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what differs from the start of a run.

    A server that was removed does not count; another workload does.
    """
    changed = [
        name
        for name in began
        if began[name] != now.get(name) and (name in now or not name.startswith("server"))
    ]
    return tuple(changed + [name for name in now if began and name not in began])


def _servers(part: Part) -> dict[str, object]:
    if part.is_emulated:
        return {arm: part.endpoints(arm) for arm in part.arms}
    # Any free port will do.
    server = msgspec.structs.replace(part.matrix.server, port=0)
    whole = document(replace(part, matrix=replace(part.matrix, server=server)))
    shared, arms = _described(whole), whole["arms"]
    assert isinstance(arms, Mapping), whole
    return {arm: {**shared, **_described(entry)} for arm, entry in arms.items()}


def _described(entry: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in entry.items() if name in SERVER}


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


LATE: Final = "the model's run started without it: use another --out to measure it"
CHANGED: Final = "the file has changed since its run started"


def resume(part: Part) -> tuple[Part, State]:
    """Return a part reduced to the arms of its run, and the state that still holds.

    Before the run starts, none does: what kept a server
    from starting is often fixed outside the matrix file.
    """
    places = part.places
    before = run_of(places.database(part.name))
    if before is None:
        return part, State()
    state = read_state(places.state(part.name))
    faults = {arm: fault for arm, fault in state.faults.items() if arm in part.wanted}
    late = [arm for arm in part.arms if arm not in before.arms]
    out = tuple(LeftOut(model=part.name, config=arm, why=LATE) for arm in late if arm not in faults)
    left = part.without(late)
    return replace(left, left_out=(*left.left_out, *out)), replace(state, faults=faults)


def diff(part: Part, state: State) -> str | None:
    """Say what has changed since a model's run started; None before it starts or if nothing has."""
    if not part.arms or run_of(part.places.database(part.name)) is None:
        return None
    names = differences(state.origin, origin(part))
    return f"{CHANGED} ({', '.join(names)}): use another --out to measure it" if names else None
