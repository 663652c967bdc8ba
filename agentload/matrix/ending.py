"""End a matrix: read each model's run, decide, and write the page over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from agentload.errors import AgentloadError
from agentload.matrix.described import Matrix
from agentload.matrix.parts import Part, parts
from agentload.matrix.past import begun, changed, resumed
from agentload.matrix.places import Places
from agentload.matrix.play import Played
from agentload.matrix.state import State
from agentload.model.trace import Trace
from agentload.report.matrix import page, write
from agentload.report.policy import Setting, parse
from agentload.report.record import Measured, Missing, Page, measured

NOT_BEGUN = "its run has not begun"


def ended(matrix: Matrix, played: Played, places: Places, traces: Mapping[str, Trace]) -> tuple[Page, tuple[Path, ...]]:
    """Write the page of what there is of every model, whichever was played now, and return it with the paths.

    A configuration beside the reference is a comparison of its own, with a page of its own in its folder.
    """
    setting = parse(matrix.policy, at="policy") if matrix.policy else Setting()
    names = [model.name for model in matrix.models]
    own = next((part.name for part in played.parts if part.name not in names), None)
    folder = places.root if own is None else places.root / own
    found: list[Measured] = []
    missing: list[Missing] = []
    for name in names if own is None else [own]:
        try:
            missing += _missing(*_standing(name, matrix, played, places, traces))
            if (before := begun(places.database(name))) is not None and places.database(name).exists():
                report = places.report(name)
                link = str(report.relative_to(folder)) if (report / "decision.md").exists() else None
                found.append(measured(places.database(name), before.run, model=name, setting=setting, report=link))
        except AgentloadError as error:
            missing.append(Missing(model=name, what="decision", why=error.message))
    made = page(matrix.name, found, missing)
    return made, write(made, folder)


def _standing(name: str, matrix: Matrix, played: Played, places: Places, traces: Mapping[str, Trace]) -> tuple[Part, State]:
    """Return a model as it was left, by us or by somebody before us."""
    if (now := next((part for part in played.parts if part.name == name), None)) is not None:
        return now, played.states[name]
    (part,) = parts(matrix, places, traces, only=name)
    return resumed(part, traces)


def _missing(part: Part, state: State) -> Iterator[Missing]:
    for each in part.left_out:
        yield Missing(model=part.name, what=each.config, why=each.why, is_failure=False)
    for config, fault in state.faults.items():
        yield Missing(model=part.name, what=config, why=fault.said.removeprefix(f"{config}: "), code=fault.code)
    if (arms := part.planned.arms) and (first := part.wanted[0]) not in arms:
        yield Missing(model=part.name, what=f"comparison with {first}", why=f"{first} is left out: {arms[0]} is the reference")
    if (other := changed(part, state)) is not None:
        yield Missing(model=part.name, what="changes", why=other)
    if begun(part.planned.places.database(part.name)) is None and not state.steps:
        yield Missing(model=part.name, what="all of it", why=NOT_BEGUN, is_failure=False)
    for step in part.steps:
        done = state.steps.get(step.name)
        if done is not None and done.outcome != "done":
            is_failure = done.outcome == "failed"  # what was stopped goes on the next time
            code = done.code if is_failure else None
            yield Missing(model=part.name, what=step.name, why=done.said or done.outcome, code=code, is_failure=is_failure)
