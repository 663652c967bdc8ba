"""Read what a model's folder says of earlier commands.

That is its run, how its steps ended, and which servers did not start. How a step ended is a row of
the run (probe `step`), in a journal of its own next to the run's others: it is stored, copied and
rebuilt with what was measured. The run's study and its arms file say what the run is of. Before a
run has started, everything may still change.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentload import documents
from agentload.endpoints.read import EMULATED
from agentload.errors import UsageError
from agentload.evidence.view import run_view
from agentload.matrix.described import LeftOut
from agentload.matrix.parts import document
from agentload.matrix.steps import MatrixStep, ModelPart
from agentload.model.controls import is_control
from agentload.model.record import Record
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, LegRow, ProbeRow, RunRow
from agentload.run.lay import with_end
from agentload.run.past import ADDED_FROM
from agentload.store import journal, tables
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.ownership import open_locked
from agentload.store.places import journal_folder, journal_rows, journalled_runs, journals
from agentload.study.change import WORDS, differences, essence, extend, resumption
from agentload.study.document import json_text
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Live, TraceRef
from agentload.study.stored import parse_stored, study_of
from agentload.tracefile import digest

Outcome: TypeAlias = Literal["done", "stopped", "failed"]
"""How a step ended.

stopped: out of time; what was measured is kept, and the step resumes with the matrix.
"""
STEP: Final = "step"
"""Probe of a row that says how a step ended; its settings have the name of the step."""
JOURNAL: Final = "steps"
KILLED: Final = "it was killed"


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """State how a step ended, and the study that it carried out."""

    outcome: Outcome
    study: str = ""
    """The study as JSON; empty for a report."""
    code: int = 0
    said: str | None = None
    before: int = 0
    """Pairs in the run that come from an earlier, different sweep."""

    @property
    def carried_out(self) -> Study | None:
        """Study that the step carried out; None for a report."""
        return parse_stored(self.study) if self.study else None

    def is_of(self, step: MatrixStep) -> bool:
        """Return whether the step still measures the same, with any number of pairs."""
        began = self.carried_out
        if began is None or step.study is None:
            return began is step.study  # a report is always the same
        return essence(began) == essence(step.study)

    def has_finished(self, step: MatrixStep) -> bool:
        """Return whether nothing of the step is left to do."""
        if self.outcome != "done" or not self.is_of(step):
            return False
        return step.pairs is None or step.pairs <= getattr(self.carried_out, "pairs", 0)


def end_of(step: MatrixStep) -> StepEnd:
    """Return the record of a step that has been carried out."""
    return StepEnd(outcome="done", study="" if step.study is None else json_text(step.study))


class ServerFault(msgspec.Struct, frozen=True, kw_only=True):
    """Report a server that did not start or was not what it should be."""

    said: str
    code: int | None = None


class ModelRun(Record):
    """Describe a model's run, the arms that it began with, and its study."""

    run: str
    arms: tuple[str, ...]
    study: Replay


def _run_of(database: Path) -> ModelRun | None:
    """Return a model's run; None before its first row is written."""
    for run in journalled_runs(database):
        for path in journals(database, run):
            # The head of a journal describes the run; the calls after it may be a gigabyte.
            head = list(takewhile(_describes_run, journal.read(path)))
            for row in head:
                study = study_of(row) if isinstance(row, RunRow) else None
                if isinstance(study, Replay):
                    return ModelRun(run=run, arms=_arms(head), study=study)
    return None


def _describes_run(row: object) -> bool:
    return isinstance(row, LegRow | RunRow | ArmRow)


def _arms(rows: list[Any]) -> tuple[str, ...]:
    arms = sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)
    return tuple(row.arm for row in arms if not is_control(row.arm))


@dataclass(slots=True, kw_only=True)
class ModelProgress:
    """Track how far a model is.

    Its part has the arms that are left; its steps have ended as stated, and its servers have
    faults.
    """

    part: ModelPart
    ends: dict[str, StepEnd] = field(default_factory=dict)
    faults: dict[str, ServerFault] = field(default_factory=dict)
    """Faults of arms that the run began without or could not begin with."""

    @property
    def database(self) -> Path:
        """Database of the model."""
        return self.part.places.database(self.part.name)

    @property
    def run(self) -> ModelRun | None:
        """Run of the model; None before it has started."""
        return _run_of(self.database)

    def is_done(self, step: MatrixStep) -> bool:
        """Return whether a step is done."""
        last = self.ends.get(step.name)
        return last is not None and last.has_finished(step)

    def note(self, step: MatrixStep, ended: StepEnd) -> None:
        """Keep how a step ended, with the run once there is one."""
        self.ends[step.name] = ended
        run = self.run
        if run is None:
            return
        row = ProbeRow(
            run_id=run.run,
            arm="",
            probe=STEP,
            at_ns=time.time_ns(),
            settings=json.dumps({STEP: step.name}),
            outcome=ended.outcome,
            detail=msgspec.json.encode(ended).decode(),
        )
        path = journal_folder(self.database, run.run) / f"{JOURNAL}.journal"
        with journal.Writer(path, ahead=0) as steps:  # the next step loads it into the database
            steps.append(row)

    def leave_out(self, arm: str, fault: ServerFault) -> None:
        """Leave out an arm, and keep the reason in its folder: no run can keep it yet."""
        self.faults[arm] = fault
        self.part = self.part.without([arm])
        path = self.part.places.fault(self.part.name, arm)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(fault))

    def forget_faults(self) -> None:
        """Forget which servers did not start before: all are tried again."""
        for arm in self.part.wanted:
            self.part.places.fault(self.part.name, arm).unlink(missing_ok=True)


LATE: Final = "the model's run started without it: use another --out to measure it"


def progress_of(part: ModelPart) -> ModelProgress:
    """Read how far a model is, its part reduced to the arms of its run.

    Before the run begins no fault is read: what kept a server from starting is often fixed outside
    the matrix file.
    """
    before = _run_of(part.places.database(part.name))
    if before is None:
        return ModelProgress(part=part)
    late = [arm for arm in part.arms if arm not in before.arms]
    left_out = list(part.left_out)
    faults = {}
    for arm in late:
        fault = _fault(part, arm)
        if fault is None:
            left_out.append(LeftOut(model=part.name, config=arm, why=LATE))
        else:
            faults[arm] = fault
    # A command that was killed during its replay has recorded no end of it.
    ends = {"replay": StepEnd(outcome="stopped", study=json_text(before.study), said=KILLED)}
    return ModelProgress(
        part=replace(part.without(late), left_out=tuple(left_out)),
        ends=ends | _ends(part.places.database(part.name), before.run),
        faults=faults,
    )


def _fault(part: ModelPart, arm: str) -> ServerFault | None:
    path = part.places.fault(part.name, arm)
    if not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=ServerFault)


def _ends(database: Path, run: str) -> dict[str, StepEnd]:
    path = journal_folder(database, run) / f"{JOURNAL}.journal"
    rows = journal.read(path, damaged=lambda _: None) if path.exists() else ()
    return {
        json.loads(row.settings)[STEP]: msgspec.json.decode(row.detail or "", type=StepEnd)
        for row in rows
        if isinstance(row, ProbeRow)
    }


def can_join(database: Path, run: str) -> bool:
    """Return whether a run can be added to: it has a finished block.

    A missing database is rebuilt from the journals.
    """
    if not database.exists():
        load(journals(database, run), database)
    with reading(database) as connection:
        return any(row.void is None for row in tables.rows(connection, BlockRow, run_id=run))


def sweep_pairs(database: Path, before: ModelRun) -> int:
    """Count the length-sweep pairs that a run has on all arms."""
    found = defaultdict(set)
    with reading(database) as connection:
        for play in run_view(connection, before.run).plays:
            if play.pair >= ADDED_FROM and play.left_out is None:
                found[play.pair].add(play.arm)
    return sum(arms >= set(before.arms) for arms in found.values())


def is_answered(database: Path, run: str) -> bool:
    """Return whether any question of a run was answered."""
    return any(
        isinstance(row, AnswerRow) and row.right is not None
        for row in journal_rows(database, run, kinds=(AnswerRow,))
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
"""Fields of an arms file that make a server; place and price may change during a run."""


def changes(part: ModelPart, run: ModelRun) -> Iterator[str]:
    """Name what the file says differently now from what a run began with.

    Its traces must have been laid out. A configuration that was removed does not count; another
    workload does.
    """
    if part.arms[0] != run.arms[0]:
        yield "reference"
    replay = part.steps[0].study
    assert isinstance(replay, Replay), part
    names = [each.name for each in part.matrix.workloads]
    traces = {name: digest(part.places.trace(name)) for name in names}
    refs = tuple(TraceRef(path=name, sha256=held) for name, held in traces.items())
    now = resumption(run.study, with_end(extend(replay, traces=refs)))
    yield from (name for name in differences(run.study, now) if name != WORDS["traces"])
    began = {Path(ref.path).stem: ref.sha256 for ref in run.study.traces}
    for name in began | traces:
        if began.get(name) != traces.get(name):
            yield f"workload {name}"
    assert isinstance(run.study.servers, Live), run
    yield from _other_servers(part, run.study.servers.endpoints)


def _other_servers(part: ModelPart, began_on: str) -> Iterator[str]:
    """Name the servers that differ from those that the run began on."""
    if part.is_emulated or began_on.startswith(EMULATED):
        if part.source != began_on.partition("/")[0]:
            yield "servers"
        return
    before = _arms_on_disk(part)
    for arm, server in _servers(document(part)).items():
        if arm in before and before[arm] != server:
            yield f"server of {arm}"


def _arms_on_disk(part: ModelPart) -> dict[str, dict[str, object]]:
    """Return the fields that make each server, from the model's arms file as last written."""
    path = part.places.endpoints(part.name)
    if not path.exists():
        return {}
    return _servers(documents.read(path))


def _servers(whole: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    shared = {name: value for name, value in whole.items() if name in SERVER}
    made = {}
    for arm, entry in whole["arms"].items():
        own = {name: _without_port(value) for name, value in entry.items() if name in SERVER}
        made[arm] = shared | own
    return made


def _without_port(value: object) -> object:
    """Return a launch command without its port: any free one will do."""
    if not isinstance(value, Mapping) or not isinstance(value.get("command"), list):
        return value
    words = value["command"]
    at = words.index("--port") if "--port" in words else len(words)
    return {**value, "command": words[:at] + words[at + 2 :]}


CHANGED: Final = "the file has changed since its run started"


def diff(progress: ModelProgress) -> str | None:
    """Say what has changed since a model's run started; None before it, or if nothing has."""
    run = progress.run
    if not progress.part.arms or run is None:
        return None
    names = ", ".join(changes(progress.part, run))
    if not names:
        return None
    return f"{CHANGED} ({names}): use another --out to measure it"


@contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Lock a matrix's folder; raise UsageError if another process has it.

    A verb that outlives a killed matrix has the yielded descriptor, and so keeps the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = open_locked(folder / ".lock")
    if lock is None:
        raise UsageError(
            f"{folder}: in use by another `agentload matrix`, or by a verb that one left running",
            hint=f"wait for it, end it (fuser {folder}/.lock names it), or use another --out",
        )
    try:
        yield lock
    finally:
        os.close(lock)
