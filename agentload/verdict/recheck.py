"""Find what is left to ask after a decision that asks for calibration."""

from pathlib import Path
from typing import Final

import msgspec

from advisor.verdict import Decision
from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.model.rows import AnswerRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Ask, Replay
from agentload.study.parts import Live
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict

CALIBRATED: Final = "fp8-calibrated"


class Recheck(Record):
    """State what is left to ask once an arm's scales are calibrated."""

    arm: str
    model: str | None
    traces: tuple[str, ...]
    study: Ask
    """Questions to the reference and the calibrated arm, which is served at the old address."""


def recheck(database: Path, run: str, *, setting: Setting) -> Recheck:
    """Read what the decision on a run leaves to ask.

    Raises UsageError where the decision asks for something else than calibration.
    """
    judged = verdict(database, run, setting=setting)
    decision, view = judged.decision, judged.view
    hint = f"agentload advise {database} --run {run}"
    arm = _to_calibrate(decision, run, hint=hint)
    urls = {each.arm: each.url for each in view.arms}
    theirs = urls[decision.reference]
    ours = urls[arm]
    if theirs is None or ours is None:
        raise UsageError(f"run {run} was simulated: there is no server to ask again", hint=hint)
    with reading(database) as connection:
        answers = tables.rows(connection, AnswerRow, run_id=view.name, arm=arm)
    began = view.study()
    endpoints = f"{decision.reference}={theirs},{CALIBRATED}={ours}"
    study = msgspec.structs.replace(
        began if isinstance(began, Ask) else Ask(servers=Live(endpoints="")),
        servers=Live(endpoints=endpoints),
        until_settled=True,
        items=None,
        traces=(),
        aa=None,
    )
    tasks = tuple(sorted({each.task for each in answers}))
    if tasks and study.own is None:
        lengths = _open_lengths(decision, arm, margin=setting.policy.accuracy_margin)
        study = msgspec.structs.replace(study, tasks=tasks, contexts=lengths)
    traces = began.traces if isinstance(began, Replay | Ask) else ()
    paths = tuple(each.path for each in traces)
    return Recheck(arm=arm, model=view.run.model, traces=paths, study=study)


def _to_calibrate(decision: Decision, run: str, *, hint: str) -> str:
    """Return the arm that the decision asks to calibrate; raise UsageError where it asks none."""
    found = {each.arm: each.verdict for each in decision.server if each.arm != decision.reference}
    for arm, word in found.items():
        if word == "calibrate":
            return arm
    said = ", ".join(f"{arm}: {word}" for arm, word in found.items())
    raise UsageError(f"the decision on run {run} does not ask for calibration ({said})", hint=hint)


def _open_lengths(decision: Decision, arm: str, *, margin: float) -> tuple[int, ...]:
    """Return the lengths at which an arm may lose more than the margin.

    All lengths that were asked where none is left open.
    """
    own = [each for each in decision.accuracy if each.arm == arm]
    left = [each for each in own if not each.difference.is_above(-margin)]
    return tuple(sorted({round(each.context_tokens) for each in left or own}))
