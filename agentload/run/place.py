"""Say where the rows of a study go, and refuse a place where they cannot go."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

from agentload.errors import StoreError, UsageError
from agentload.model.record import Record
from agentload.model.rows import RunRow
from agentload.run.record import again, new_run_id
from agentload.store.places import DATABASE, began, journalled_runs, journals
from agentload.study.change import differences, typed_alone
from agentload.study.document import tag
from agentload.study.fields import Role
from agentload.study.kinds import Ask, Decide, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Virtual
from agentload.study.stored import study_of

ALONE: Final = "leave it out: the study is a run of its own"
ANEW: Final = "leave it out: in virtual time the same study is the same run, made again"


class StudyPlace(Record):
    """Where the rows of a study go, and what they are added to."""

    database: Path = Path(DATABASE)
    run: str | None = None
    """Name of the run; None: by the clock, or by what it depends on."""
    resume: str | None = None
    """Run to resume."""
    into: str | None = None
    """Run to which the rows are added."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.resume or self.into or self.run or new_run_id()


def place_of(
    study: Study,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    into: str | None = None,
) -> StudyPlace:
    """Return where a study's rows go.

    Raises UsageError where they cannot go there, StoreError where a run to join is missing.
    """
    database = Path(db)
    if resume is not None and into is not None:
        raise UsageError(
            "--resume continues a run of its own kind, --into adds to another: give one of them",
            hint=ALONE,
        )
    if into is not None:
        _check_joins(study)
    if resume is not None and not (
        isinstance(study, Ask | Replay | Decide) and isinstance(study.servers, Live)
    ):
        said = "--resume continues a replay on servers, questions to them, or a decision"
        raise UsageError(said, hint=ANEW if isinstance(study.servers, Virtual) else ALONE)
    if run_id is not None and (resume or into):
        raise UsageError(
            "--run-id names a new run, --resume and --into one that there is: give one of them",
            hint="leave out --run-id",
        )
    if run_id is not None:
        _check_name(study, database, run_id)
    return StudyPlace(
        database=database,
        run=run_id,
        resume=resume,
        into=None if into is None else _run_to_join(database, into),
    )


def _check_name(study: Study, database: Path, run_id: str) -> None:
    """Raise UsageError for a name that no run of *study* can have.

    Under one that a run has, rows of two would become one's.
    """
    if study.rows != "run":
        raise UsageError(
            f"--run-id names a run, and a {tag(type(study))} is none",
            hint="--into keeps it beside one",
        )
    kept = journals(database, run_id)
    if not (kept or _holds(database, run_id)):
        return
    row = began(database, run_id)
    if isinstance(study.servers, Virtual) and _is_made_again(study, row, kept):
        return
    # A decision's run is described by its first replay, and by nothing before it.
    is_alike = isinstance(study, Decide) or (
        row is not None and isinstance(study_of(row), type(study))
    )
    if kept and is_alike and isinstance(study.servers, Live):
        hint = f"resume it with: {again(study, database, resume=run_id)}"
    elif isinstance(study, Ask | Sweep) and isinstance(study.servers, Live):
        hint = f"add to it with: {again(study, database, into=run_id)}"
    else:
        hint = "give another name, or leave out --run-id"
    said = f"--run-id {run_id}: there is a run of this name in {database}"
    raise UsageError(said, hint=hint)


def _is_made_again(study: Study, row: RunRow | None, kept: Iterable[Path]) -> bool:
    """Tell whether a study in virtual time is what a run was made of: it replaces its own rows."""
    if row is None or row.kind != "simulated":
        return False
    if isinstance(study, Decide):  # its run is described by the replay that it asked for first
        return any(file.name.startswith("decision") for file in kept)
    made = study_of(row)
    return made is None or not differences(
        typed_alone(made), typed_alone(study), roles=get_args(Role)
    )


def _holds(database: Path, run_id: str) -> bool:
    """Tell whether a database has a run of that name, which may be imported, without journals."""
    from agentload.store.runs import run_named  # late: most runs are new, and help reads none

    try:
        return run_named(database, run_id) == run_id
    except StoreError:
        return False


def _run_to_join(database: Path, wanted: str) -> str:
    """Return the run that *wanted* names.

    A run that was killed may be in its journals alone, which are loaded then.
    """
    from agentload.store.loader import load  # late: as above
    from agentload.store.runs import run_named

    try:
        return run_named(database, wanted)
    except StoreError:
        waiting = [run for run in journalled_runs(database) if run.startswith(wanted)]
        if not waiting:
            raise
    for run in waiting:
        load(journals(database, run), database)
    return run_named(database, wanted)


def _check_joins(study: Study) -> None:
    """Raise UsageError for a study that is not added to another run."""
    match study:
        case Replay(servers=Virtual()):
            raise UsageError("--into does nothing without --find", hint="agentload simulate --help")
        case Replay():
            raise UsageError(
                "--into keeps sweeps, searches and questions beside a run, and this is a replay",
                hint=ALONE,
            )
        case Search(find="max-rate"):
            raise UsageError(
                "--into keeps searches for max-concurrency, and this is one for max-rate",
                hint="leave out --into",
            )
        case _ if study.rows == "none":
            said = f"a {tag(type(study))} stores nothing: --into does nothing"
            raise UsageError(said, hint="leave out --into")
        case _:
            pass
