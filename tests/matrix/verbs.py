"""What stands for the verbs of a matrix, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentload.matrix.child import Exit
from agentload.matrix.described import MatrixFolder
from agentload.matrix.pages import write_page
from agentload.matrix.parts import traces_of
from agentload.matrix.past import ModelProgress
from agentload.matrix.play import play
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.rows import Row
from agentload.report.matrix import MatrixPage
from agentload.run.files import read_traces
from agentload.run.place import StudyPlace
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.kinds import Ask, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live
from tests.evidence import runs
from tests.matrix.files import matrix

DONE = Exit(code=0)
NAMES: dict[type, str] = {
    Replay: "replay",
    Sweep: "sweep",
    Search: "sweep",
    Ask: "eval",
    Probe: "probe",
}
Does = Callable[[Path, Study], Exit]


@dataclass
class Verbs:
    """Notes what would be run, and does what it leaves behind."""

    does: dict[str, Does] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    studies: list[Study] = field(default_factory=list)
    runs: list[str | None] = field(default_factory=list)
    """The runs that were gone on with, or joined."""

    def __call__(self, study: Study, place: StudyPlace, **_: Any) -> Exit:
        name = NAMES[type(study)]
        self.names.append(name)
        self.studies.append(study)
        self.runs.append(place.resume or place.into)
        return self.does.get(name, measured if name == "replay" else nothing)(place.database, study)

    def report(self, _database: Path, run: str, _folder: Path) -> Exit:
        self.names.append("report")
        self.runs.append(run)
        return DONE


def nothing(_database: Path, _study: Study) -> Exit:
    return DONE


def failing(_database: Path, _study: Study) -> Exit:
    return Exit(code=1, error="error: it broke; hint: mend it")


def endpoints(study: Study) -> tuple[str, tuple[str, ...]]:
    """Name the servers of a study: their source, and its arms."""
    assert isinstance(study.servers, Live)
    source, _, arms = study.servers.endpoints.rpartition("/")
    return source, tuple(arms.split("+"))


def pairs_of(study: Study) -> int:
    """Return the pairs that a sweep is asked for."""
    assert isinstance(study, Sweep)
    return study.pairs


def written(database: Path, *rows: Row) -> None:
    path = journal_folder(database, "r1") / "leg001.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    load([path], database)


def measured(database: Path, study: Study) -> Exit:
    """Play a pair of a model's run, as a replay does."""
    assert isinstance(study, Replay)
    _, arms = endpoints(study)
    played = extend(study, traces=read_traces(study.traces)[1])
    described = [runs.arm(arm, at) for at, arm in enumerate(arms)]
    blocks = [runs.block(arm, 0, 100 * at) for at, arm in enumerate(arms)]
    written(database, runs.run(played), runs.leg(), *described, *blocks)
    return DONE


def pair(number: int) -> Iterator[Row]:
    """A pair of blocks of a sweep of lengths."""
    for place, name in enumerate(runs.ARMS):
        at_s = 900 + 10 * (number % 1000) + 200 * place
        yield runs.block(name, number, at_s)
        yield runs.call(name, number, at_s + 1, workload=CONTEXT_SWEEP)


def played(text: str, folder: Path, verbs: Verbs, **options: Any) -> tuple[ModelProgress, ...]:
    made = matrix(text)
    return play(
        made,
        MatrixFolder(folder / "out"),
        traces_of(made),
        verb=verbs,
        report=verbs.report,
        **options,
    )


def paged(text: str, now: tuple[ModelProgress, ...], folder: Path) -> MatrixPage:
    made = matrix(text)
    return write_page(made, now, MatrixFolder(folder / "out"), traces_of(made))[0]
