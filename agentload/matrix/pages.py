"""Write the page over all models of a matrix, played now or by earlier commands."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agentload.errors import AgentloadError
from agentload.matrix.described import Matrix, MatrixFolder
from agentload.matrix.parts import parts
from agentload.matrix.past import ModelProgress, diff, progress_of
from agentload.model.trace import Trace
from agentload.report.matrix import MatrixPage, write
from agentload.report.record import Measured, Missing, record_of

NOT_STARTED: Final = "its run has not started"


def write_page(
    matrix: Matrix,
    played: Sequence[ModelProgress],
    places: MatrixFolder,
    traces: Mapping[str, Trace],
) -> tuple[MatrixPage, tuple[Path, ...]]:
    """Write the page over all models; return it with the paths.

    A part of one configuration and the reference is a separate comparison, with its own page in its
    folder.
    """
    now = {each.part.name: each for each in played}
    names = [model.name for model in matrix.models]
    folder = places.root
    own = next((name for name in now if name not in names), None)
    if own is not None:
        names = [own]
        folder = folder / own
    found: list[Measured] = []
    missing: list[Missing] = []
    for name in names:
        try:
            model = now.get(name)
            if model is None:
                (part,) = parts(matrix, places, traces, only=name)
                model = progress_of(part)
            missing += _missing(model)
            found += _measured(model, matrix, folder)
        except AgentloadError as error:
            missing.append(Missing(model=name, what="decision", why=error.message))
    made = MatrixPage(title=matrix.name, models=tuple(found), missing=tuple(missing))
    return made, write(made, folder)


def _measured(model: ModelProgress, matrix: Matrix, folder: Path) -> Iterator[Measured]:
    run, name = model.run, model.part.name
    if run is None or not model.database.exists():
        return
    report = model.part.places.report(name)
    link = str(report.relative_to(folder)) if (report / "decision.md").exists() else None
    yield record_of(model.database, run.run, model=name, setting=matrix.setting, report=link)


def _missing(model: ModelProgress) -> Iterator[Missing]:
    part = model.part
    for each in part.left_out:
        yield Missing(model=part.name, what=each.config, why=each.why, is_failure=False)
    for arm, fault in model.faults.items():
        why = fault.said.removeprefix(f"{arm}: ")
        yield Missing(model=part.name, what=arm, why=why, code=fault.code)
    first = part.wanted[0]
    if part.arms and first not in part.arms:
        why = f"{first} is left out: {part.arms[0]} is the reference"
        yield Missing(model=part.name, what=f"comparison with {first}", why=why)
    other = diff(model)
    if other is not None:
        yield Missing(model=part.name, what="changes", why=other)
    if model.run is None and not model.ends:
        yield Missing(model=part.name, what="all of it", why=NOT_STARTED, is_failure=False)
    for step in part.steps:
        ended = model.ends.get(step.name)
        if ended is None or ended.outcome == "done":
            continue
        is_failure = ended.outcome == "failed"  # what was stopped resumes next time
        yield Missing(
            model=part.name,
            what=step.name,
            why=ended.said or ended.outcome,
            code=ended.code if is_failure else None,
            is_failure=is_failure,
        )
