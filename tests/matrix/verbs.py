"""What stands for the verbs of a matrix, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentload.matrix.child import Ended
from agentload.matrix.described import Places
from agentload.matrix.parts import traces_of
from agentload.matrix.play import Played, ended, play
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.rows import Row
from agentload.report.record import Page
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.study.kinds import Ask, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live
from tests.evidence import runs
from tests.matrix.files import matrix

DONE = Ended(code=0, is_timed_out=False)
OPENING: tuple[Row, ...] = (
    runs.run(),
    runs.leg(),
    *(runs.arm(name, place) for place, name in enumerate(runs.ARMS)),
)


NAMES: dict[type, str] = {
    Replay: "replay",
    Sweep: "sweep",
    Search: "sweep",
    Ask: "eval",
    Probe: "probe",
}


@dataclass
class Verbs:
    """Notes what would be run, and does what it leaves behind."""

    does: dict[str, Callable[[Path], Ended]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    studies: list[Study] = field(default_factory=list)
    runs: list[str | None] = field(default_factory=list)
    """The runs that were gone on with, or joined."""

    def __call__(self, study: Study, *, database: Path, run: str | None, **_: Any) -> Ended:
        name = NAMES[type(study)]
        self.studies.append(study)
        return self._done(name, database, run)

    def report(self, database: Path, run: str, _folder: Path) -> Ended:
        return self._done("report", database, run)

    def _done(self, name: str, database: Path, run: str | None) -> Ended:
        self.names.append(name)
        self.runs.append(run)
        if name in self.does:
            return self.does[name](database)
        if name == "replay":
            measured(database)
        return DONE


def endpoints(study: Study) -> str:
    """Name the servers of a study."""
    assert isinstance(study.servers, Live)
    return study.servers.endpoints


def pairs_of(study: Study) -> int:
    """Return the pairs that a sweep is asked for."""
    assert isinstance(study, Sweep)
    return study.pairs


def written(database: Path, *rows: Row) -> Path:
    path = journal_folder(database, "r1") / "leg001.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    return path


def measured(database: Path) -> None:
    """Begin the run of a model, as a replay does; that
    there is a database means that a pair is finished.
    """
    written(database, *OPENING)
    database.touch()


def loaded(database: Path) -> Ended:
    """Begin the run of a model in a real database."""
    load([written(database, *OPENING)], database)
    return DONE


def pair(number: int) -> Iterator[Row]:
    """A pair of blocks of a sweep of lengths."""
    for place, name in enumerate(runs.ARMS):
        at_s = 900 + 10 * (number % 1000) + 200 * place
        yield runs.block(name, number, at_s)
        yield runs.call(name, number, at_s + 1, workload=CONTEXT_SWEEP)


def failing(_: Path) -> Ended:
    return Ended(code=1, is_timed_out=False, error="error: it broke; hint: mend it")


def played(text: str, folder: Path, verbs: Verbs, **options: Any) -> Played:
    made = matrix(text)
    return play(
        made, Places(folder / "out"), traces_of(made), verb=verbs, report=verbs.report, **options
    )


def paged(text: str, now: Played, folder: Path) -> Page:
    made = matrix(text)
    return ended(made, now, Places(folder / "out"), traces_of(made))[0]
