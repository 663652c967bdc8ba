"""What was done of a matrix so far: each model's state, kept in its folder after every step, and what its database and journals have."""

from __future__ import annotations

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
from agentload.store.places import journalled_runs, journals
from agentload.tracefile import digest

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The run of a model, and the arms that it began with."""

    run: str
    arms: tuple[str, ...]


def begun(database: Path) -> Begun | None:
    """Return the run of a model; None before the first of its rows is written."""
    for run in journalled_runs(database):
        for path in journals(database, run):
            # Every leg opens with what it is; its calls may be a gigabyte.
            rows = list(takewhile(lambda row: isinstance(row, LegRow | RunRow | ArmRow), journal.read(path)))
            if any(isinstance(row, RunRow) for row in rows):
                arms = sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)
                return Begun(run=run, arms=tuple(row.arm for row in arms if not is_control(row.arm)))
    return None


def is_ready(database: Path, run: str) -> bool:
    """Tell whether a run can be joined; a database that is missing is made of its journals as soon as a block of them counts."""
    if not database.exists():
        found = journals(database, run)
        if any(isinstance(row, BlockRow) and row.void is None for path in found for row in journal.read(path)):
            load(found, database)
    return database.exists()


def swept(database: Path, before: Begun) -> int:
    """Count the pairs of sweeps of lengths that a run has on all of its arms."""
    found = defaultdict(set)
    with reading(database) as connection:
        for play in plays(connection, before.run):
            if play.pair >= BESIDE and play.left_out is None:
                found[play.pair].add(play.arm)
    return sum(arms >= set(before.arms) for arms in found.values())


def is_answered(database: Path, run: str) -> bool:
    """Tell whether a question of a run was answered."""
    return any(isinstance(row, AnswerRow) and row.right is not None for path in journals(database, run) for row in journal.read(path))


SERVER: Final = frozenset({"model", "aliases", "extra_body", "force_lengths", "expect", "tensor_parallel", "data_parallel", "launch"})
"""What an arms file says of a server, not of where it is or of what it costs: that may change while it is measured."""


def origin(part: Part) -> dict[str, str]:
    """Return what a model's run would be of, each as a digest; its traces are read where they are laid out."""
    replay = part.steps[0]
    traces = {each.name: digest(part.places.trace(each.name)) for each in part.matrix.workloads}
    return {
        "reference": part.arms[0],
        "load": _digest(replay.asked),
        **{f"workload {name}": found for name, found in traces.items()},
        **{f"server of {arm}": _digest(server) for arm, server in _servers(part).items()},
    }


def other(began: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what is not what a run began with. A server that is no longer wanted is none of it; another workload is."""
    changed = [name for name in began if began[name] != now.get(name) and (name in now or not name.startswith("server"))]
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


LATE: Final = "its model's run began without it: another --out measures it"
CHANGED: Final = "the file is not what its run began with"


def resumed(part: Part) -> tuple[Part, State]:
    """Return a model with the arms that its run has, and what still holds of what was done.

    Before the run begins nothing does: what kept a server from starting is often mended where no file tells of it.
    """
    places = part.places
    before = begun(places.database(part.name))
    if before is None:
        return part, State()
    state = read_state(places.state(part.name))
    faults = {arm: fault for arm, fault in state.faults.items() if arm in part.wanted}
    late = [arm for arm in part.arms if arm not in before.arms]
    out = tuple(LeftOut(model=part.name, config=arm, why=LATE) for arm in late if arm not in faults)
    left = part.without(late)
    return replace(left, left_out=(*left.left_out, *out)), replace(state, faults=faults)


def changed(part: Part, state: State) -> str | None:
    """Say what of a model is not what its run began with; None before it has, or where all is."""
    if not part.arms or begun(part.places.database(part.name)) is None:
        return None
    names = other(state.origin, origin(part))
    return f"{CHANGED} ({', '.join(names)}): another --out measures it" if names else None
