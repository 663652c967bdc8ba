"""What a model's database and journals have of the matrix already."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from agentload.evidence.plays import plays
from agentload.matrix.described import LeftOut
from agentload.matrix.parts import Part, document
from agentload.matrix.state import State, read_state
from agentload.matrix.steps import Planned
from agentload.model.controls import is_control
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, LegRow, RunRow
from agentload.model.trace import Trace
from agentload.run.past import FIRST as BESIDE
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.places import journalled_runs, journals
from agentload.tracefile import digest


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
    planned, (replay, *_) = part.planned, part.steps
    traces = {each.name: digest(planned.places.trace(each.name)) for each in planned.matrix.workloads}
    return {
        "reference": planned.arms[0],
        "load": _digest(replay.asked),
        **{f"workload {name}": found for name, found in traces.items()},
        **{f"server of {arm}": _digest(server) for arm, server in _servers(planned).items()},
    }


def other(began: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what is not what a run began with. A server that is no longer wanted is none of it; another workload is."""
    changed = [name for name in began if began[name] != now.get(name) and (name in now or not name.startswith("server"))]
    return tuple(changed + [name for name in now if began and name not in began])


def _servers(planned: Planned) -> dict[str, object]:
    if planned.is_emulated:
        return {arm: planned.endpoints(arm) for arm in planned.arms}
    # Any free port will do.
    server = replace(planned.matrix.server, port=0)
    whole = document(replace(planned, matrix=replace(planned.matrix, server=server)))
    shared, arms = _described(whole), whole["arms"]
    assert isinstance(arms, Mapping), whole
    return {arm: {**shared, **_described(entry)} for arm, entry in arms.items()}


def _described(entry: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in entry.items() if name in SERVER}


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


LATE: Final = "its model's run began without it: another --out measures it"
CHANGED: Final = "the file is not what its run began with"


def resumed(part: Part, traces: Mapping[str, Trace]) -> tuple[Part, State]:
    """Return a model with the arms that its run has, and what still holds of what was done.

    Before the run begins nothing does: what kept a server from starting is often mended where no file tells of it.
    """
    places = part.planned.places
    before = begun(places.database(part.name))
    if before is None:
        return part, State()
    state = read_state(places.state(part.name))
    faults = {arm: fault for arm, fault in state.faults.items() if arm in part.wanted}
    late = [arm for arm in part.planned.arms if arm not in before.arms]
    out = tuple(LeftOut(model=part.name, config=arm, why=LATE) for arm in late if arm not in faults)
    left = part.without(late, traces)
    return replace(left, left_out=(*left.left_out, *out)), replace(state, faults=faults)


def changed(part: Part, state: State) -> str | None:
    """Say what of a model is not what its run began with; None before it has, or where all is."""
    if not part.planned.arms or begun(part.planned.places.database(part.name)) is None:
        return None
    names = other(state.origin, origin(part))
    return f"{CHANGED} ({', '.join(names)}): another --out measures it" if names else None
