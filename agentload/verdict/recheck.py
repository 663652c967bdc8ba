"""Find what is left to ask after a decision that asks for calibration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from advisor.verdict import Decision
from agentload.errors import UsageError
from agentload.model.rows import AnswerRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Ask, Replay
from agentload.study.parts import Live
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict

CALIBRATED: Final = "fp8-calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
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
    found = {each.arm: each.verdict for each in decision.server if each.arm != decision.reference}
    arm = next((name for name, verdict in found.items() if verdict == "calibrate"), None)
    hint = f"agentload advise {database} --run {run}"
    if arm is None:
        said = ", ".join(f"{name}: {verdict}" for name, verdict in found.items())
        raise UsageError(
            f"the decision on run {run} does not ask for calibration ({said})", hint=hint
        )
    arms = {each.arm: each for each in view.arms}
    first, other = arms[decision.reference], arms[arm]
    if first.url is None or other.url is None:
        raise UsageError(f"run {run} was simulated: there is no server to ask again", hint=hint)
    with reading(database) as connection:
        answers = tables.rows(connection, AnswerRow, run_id=view.name, arm=arm)
    tasks = {each.task for each in answers}
    lengths = _open_lengths(decision, arm, margin=setting.policy.accuracy_margin)
    began = view.study()
    base = began if isinstance(began, Ask) else Ask(servers=Live(endpoints=""))
    endpoints = f"{decision.reference}={first.url},{CALIBRATED}={other.url}"
    study = msgspec.structs.replace(
        base, servers=Live(endpoints=endpoints), until_settled=True, items=None, traces=(), aa=None
    )
    if tasks and base.own is None:
        study = msgspec.structs.replace(study, tasks=tuple(sorted(tasks)), contexts=lengths)
    traces = began.traces if isinstance(began, Replay | Ask) else ()
    return Recheck(
        arm=arm, model=view.run.model, traces=tuple(each.path for each in traces), study=study
    )


def _open_lengths(decision: Decision, arm: str, *, margin: float) -> tuple[int, ...]:
    """Return the lengths at which an arm may lose more than the margin.

    All lengths that were asked where none is left open.
    """
    own = [each for each in decision.accuracy if each.arm == arm]
    lows = ((each, each.difference.low) for each in own)
    open_ = [each for each, low in lows if low is None or low <= -margin]
    return tuple(sorted({round(each.context_tokens) for each in open_ or own}))
