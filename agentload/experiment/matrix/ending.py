"""End a matrix: read each model's run, decide, and write the page over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentload.errors import AgentloadError
from agentload.experiment.matrix.parts import Matrix
from agentload.experiment.matrix.past import begun
from agentload.experiment.matrix.places import Places
from agentload.experiment.matrix.plan import Part
from agentload.experiment.matrix.play import Outcome
from agentload.report.matrix.page import page
from agentload.report.matrix.parts import Measured, Missing, Page
from agentload.report.matrix.read import measured
from agentload.report.matrix.write import write
from agentload.report.policy import Setting, parse


def ended(matrix: Matrix, outcome: Outcome, places: Places) -> tuple[Page, tuple[Path, ...]]:
    """Write the page of what there is, and return it with the paths."""
    setting = parse(matrix.policy, at="policy") if matrix.policy else Setting()
    found: list[Measured] = []
    missing: list[Missing] = []
    for part in outcome.parts:
        missing += _missing(part, outcome)
        database = places.database(part.name)
        before = begun(database)
        if before is None or not database.exists():
            continue
        report = places.report(part.name)
        link = f"{part.name}/{report.name}" if (report / "decision.md").exists() else None
        try:
            found.append(measured(database, before.run, model=part.name, setting=setting, report=link))
        except AgentloadError as error:
            missing.append(Missing(model=part.name, what="decision", why=error.message))
    made = page(matrix.name, found, missing)
    return made, write(made, places.root)


def _missing(part: Part, outcome: Outcome) -> Iterator[Missing]:
    for each in part.left_out:
        yield Missing(model=part.name, what=each.config, why=each.why, is_failure=False)
    for key, fault in outcome.state.faults.items():
        model, _, config = key.partition("/")
        if model == part.name and config not in part.planned.arms:
            yield Missing(model=model, what=config, why=fault.said.removeprefix(f"{config}: "), code=fault.code)
    for step in part.steps:
        done = outcome.state.steps.get(step.key)
        if done is not None and done.outcome != "done":
            is_failure = done.outcome == "failed"  # what was stopped goes on the next time
            code = done.code if is_failure else None
            yield Missing(model=part.name, what=step.name, why=done.said or done.outcome, code=code, is_failure=is_failure)
