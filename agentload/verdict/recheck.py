"""What is left to ask after a decision that asks for calibration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from agentload.errors import UsageError
from agentload.model.rows import AnswerRow, ArmRow, RunRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Ask, Replay
from agentload.study.parts import Live
from agentload.study.stored import study_of
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict

CALIBRATED: Final = "fp8-calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """What is left to ask once an arm's scales are calibrated."""

    arm: str
    model: str | None
    traces: tuple[str, ...]
    study: Ask
    """The reference and the calibrated arm, which is served where the other was."""


def recheck(database: Path, run: str, *, setting: Setting) -> Recheck:
    """Read what a run's decision leaves to ask.

    Raises UsageError where it asks for something else than calibration.
    """
    decision = verdict(database, run, setting=setting).decision
    found = {each.arm: each.verdict for each in decision.server if each.arm != decision.reference}
    arm = next((name for name, verdict in found.items() if verdict == "calibrate"), None)
    hint = f"agentload advise {database} --run {run}"
    if arm is None:
        said = ", ".join(f"{name}: {verdict}" for name, verdict in found.items())
        raise UsageError(
            f"the decision on run {run} does not ask for calibration ({said})", hint=hint
        )
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow, run_id=run)
        arms = {each.arm: each for each in tables.rows(connection, ArmRow, run_id=run)}
        tasks = {
            each.task for each in tables.rows(connection, AnswerRow, run_id=run) if each.arm == arm
        }
    first, other = arms[decision.reference], arms[arm]
    if first.url is None or other.url is None:
        raise UsageError(f"run {run} was simulated: there is no server to ask again", hint=hint)
    margin = setting.policy.accuracy_margin
    open_ = [
        each
        for each in decision.accuracy
        if each.arm == arm and (each.difference.low is None or each.difference.low <= -margin)
    ]
    lengths = sorted(
        {
            round(each.context_tokens)
            for each in open_ or [each for each in decision.accuracy if each.arm == arm]
        }
    )
    began = study_of(row)
    base = began if isinstance(began, Ask) else Ask(servers=Live(endpoints=""))
    endpoints = f"{decision.reference}={first.url},{CALIBRATED}={other.url}"
    study = msgspec.structs.replace(
        base, servers=Live(endpoints=endpoints), until_settled=True, items=None, traces=(), aa=None
    )
    if tasks and base.own is None:
        study = msgspec.structs.replace(study, tasks=tuple(sorted(tasks)), contexts=tuple(lengths))
    traces = began.traces if isinstance(began, Replay | Ask) else ()
    return Recheck(
        arm=arm, model=row.model, traces=tuple(each.path for each in traces), study=study
    )
