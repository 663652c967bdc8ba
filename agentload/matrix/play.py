"""Play a matrix step by step, each in a child process; after a failure, go to the next."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from agentload.errors import AgentloadError, InterruptError, StoreError
from agentload.matrix import child
from agentload.matrix.child import INTERRUPTED, Exit, Stops
from agentload.matrix.described import Matrix, MatrixFolder
from agentload.matrix.faults import faults
from agentload.matrix.parts import lay_out, parts, write_arms
from agentload.matrix.past import (
    KILLED,
    ModelProgress,
    ModelRun,
    StepEnd,
    can_join,
    diff,
    end_of,
    hold,
    is_answered,
    progress_of,
    sweep_pairs,
)
from agentload.matrix.steps import MatrixStep
from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.report.advise import advise, keep
from agentload.report.render import write
from agentload.run.place import StudyPlace
from agentload.study.kinds import Ask, Replay
from agentload.verdict.policy import Setting

NO_RUN: Final = "the replay has not finished a block pair"
ANSWERED: Final = (
    "its questions were answered with another thinking budget: use another --out to ask them again"
)
GO_ON: Final = "the same command resumes there"
FOREVER: Final = float("inf")
Told: TypeAlias = Callable[[str], None]
Verb: TypeAlias = Callable[..., Exit]
"""Carries one study out, as `child.carry_out` does."""
Reporter: TypeAlias = Callable[[Path, str, Path], Exit]
"""Writes a run's report into a folder."""


def play(
    matrix: Matrix,
    places: MatrixFolder,
    traces: Mapping[str, Trace],
    *,
    only: str | None = None,
    minutes: float | None = None,
    told: Told = lambda _: None,
    verb: Verb = child.carry_out,
    report: Reporter | None = None,
) -> tuple[ModelProgress, ...]:
    """Play the remaining steps.

    Raises InterruptError when asked to stop; finished steps stay finished.
    """
    found = parts(matrix, places, traces, only=only)
    with hold(places.root) as lock, Stops().caught() as stops:
        lay_out(matrix, places, traces)
        player = _Player(
            models=tuple(map(progress_of, found)),
            stops=stops,
            pace=StepPace(minutes=minutes),
            told=told,
            verb=partial(verb, lock=lock),
            report=report or partial(_write_report, matrix.setting),
        )
        for model in player.models:
            player.play(model)
    return player.models


def _write_report(setting: Setting, database: Path, run: str, folder: Path) -> Exit:
    """Decide on a run and write its report."""
    try:
        found = advise(database, run, setting=setting)
        keep(found, database, setting=setting)
        write(found, folder)
    except AgentloadError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        return Exit(code=1, error=f"error: {error.message}{hint}")
    return Exit(code=0)


class _Player(Record):
    """Do one process's work on a matrix."""

    models: tuple[ModelProgress, ...]
    stops: Stops
    pace: "StepPace"
    told: Told
    verb: Verb
    report: Reporter

    def play(self, model: ModelProgress) -> None:
        """Play one model: its replay, then what is added to that run."""
        is_same = self._replay(model)
        for step in model.part.steps[1:]:
            if step.study is None or (is_same and not model.is_done(step)):
                self._add(model, step)

    def _replay(self, model: ModelProgress) -> bool:
        """Play the model's run without the servers that keep it from beginning.

        Returns whether the run is what the file describes.
        """
        if model.run is None:
            model.forget_faults()
        while model.part.arms:
            other = diff(model)
            if other is not None:
                self.told(f"{model.part.name}: {other}")
                return False
            write_arms(model.part, keeps_others=model.run is not None)
            step = model.part.steps[0]
            if model.is_done(step) or self._carry_out(model, step):
                break
            if model.run is not None or not self._leave_out_faulty(model):
                break
        return True

    def _leave_out_faulty(self, model: ModelProgress) -> bool:
        """Leave out the servers that keep a replay from beginning; tell whether any do."""
        name = model.part.name
        reference = model.part.arms[0]
        found = dict(faults(model.part, told=self.told, is_stopping=lambda: self.stops.count > 0))
        for arm, fault in found.items():
            model.leave_out(arm, fault)
        self._heed(name)
        arms = model.part.arms
        if arms and reference in found:
            self.told(f"{name}: {reference} is left out: {arms[0]} is the reference")
        return bool(found)

    def _add(self, model: ModelProgress, step: MatrixStep) -> None:
        """Carry out what is added to a run; record a failure where that is impossible."""
        run = model.run
        try:
            why = None if run is not None and can_join(model.database, run.run) else NO_RUN
        except StoreError as error:
            why = error.message
        if why is None:
            self._carry_out(model, step)
        else:
            self._note(model, step, replace(end_of(step), outcome="failed", code=1, said=why))

    def _carry_out(self, model: ModelProgress, step: MatrixStep) -> bool:
        """Carry out a step and record how it ended; return whether what it measured is kept."""
        run = model.run
        last = model.ends.get(step.name)
        if run is not None and last is not None and _contradicts(step, last, model, run):
            self._note(model, step, replace(last, outcome="failed", code=1, said=ANSWERED))
            return False
        made, left = _laid_out(step, last, model, run)
        if left is not None and left <= 0:
            self._note(model, step, made)
            return True
        self._announce(step)
        if step.study is not None:
            model.note(step, replace(made, outcome="stopped", said=KILLED))
        began = time.monotonic()
        ended = self._exit(model, step, run, left)
        is_whole = run is None if step.kind == "replay" else last is None
        if ended.code == 0 and is_whole:
            expected = model.part.estimates[step.name].minutes
            self.pace.spend(time.monotonic() - began, expected_minutes=expected)
        self._note(model, step, _ended(made, ended))
        self._heed(step.key)
        return ended.code in {0, INTERRUPTED}

    def _exit(
        self, model: ModelProgress, step: MatrixStep, run: ModelRun | None, left: int | None
    ) -> Exit:
        places = model.part.places
        name = None if run is None else run.run
        study = step.with_pairs(left)
        if study is None:
            assert name is not None, "a report needs a run"
            return self.report(model.database, name, places.report(step.model))
        place = StudyPlace(database=model.database, into=name)
        if isinstance(study, Replay):
            place = StudyPlace(database=model.database, resume=name)
        ahead = self._ahead(step)
        return self.verb(
            study,
            place,
            output=places.output(step.model, step.name),
            until=self.pace.until(ahead[step.key], sum(ahead.values())),
            stops=self.stops,
            say=lambda line: self.told(f"  {line}"),
        )

    def _ahead(self, step: MatrixStep) -> dict[str, float]:
        """Return the minutes that this step and the later ones are expected to take, by key."""
        every = [(model, each) for model in self.models for each in model.part.steps]
        place = [each.key for _, each in every].index(step.key)
        return {
            each.key: model.part.estimates[each.name].minutes
            for model, each in every[place:]
            if each.key == step.key or not model.is_done(each)
        }

    def _announce(self, step: MatrixStep) -> None:
        keys = [each.key for model in self.models for each in model.part.steps]
        minutes = max(1.0, self.pace.minutes_left(sum(self._ahead(step).values())))
        self.told(
            f"[{keys.index(step.key) + 1}/{len(keys)}] {step.key} on {', '.join(step.arms)}; "
            f"about {minutes:.0f} min left in all"
        )

    def _heed(self, where: str) -> None:
        if self.stops.count:
            raise InterruptError(f"stopped in {where}; what was measured is stored", hint=GO_ON)

    def _note(self, model: ModelProgress, step: MatrixStep, ended: StepEnd) -> None:
        model.note(step, ended)
        if ended.outcome != "done":
            self.told(f"{step.key}: {ended.outcome}: {ended.said}")


def _contradicts(step: MatrixStep, last: StepEnd, model: ModelProgress, run: ModelRun) -> bool:
    """Return whether questions were answered with another thinking budget."""
    began, now = last.carried_out, step.study
    if not (isinstance(began, Ask) and isinstance(now, Ask)):
        return False
    is_other = began.thinking_tokens != now.thinking_tokens
    return is_other and is_answered(model.database, run.run)


def _laid_out(
    step: MatrixStep, last: StepEnd | None, model: ModelProgress, run: ModelRun | None
) -> tuple[StepEnd, int | None]:
    """Return the record of the step once done, and the pairs that a length sweep still lacks."""
    made = end_of(step)
    if step.kind != "context" or step.pairs is None or run is None:
        return made, None
    found, before = sweep_pairs(model.database, run), 0
    if last is not None:
        before = last.before if last.is_of(step) else found
    return replace(made, before=before), step.pairs - (found - before)


def _ended(made: StepEnd, ended: Exit) -> StepEnd:
    if ended.code == 0:
        return made
    if ended.code == INTERRUPTED:
        said = "out of time" if ended.is_timed_out else "interrupted"
        return replace(made, outcome="stopped", code=ended.code, said=said)
    said = ended.error or f"ended with code {ended.code}"
    return replace(made, outcome="failed", code=ended.code, said=said)


class StepPace:
    """Compare expected time with time spent."""

    def __init__(self, *, minutes: float | None) -> None:
        """Start now; None: no time limit."""
        self._until = FOREVER if minutes is None else time.monotonic() + 60 * minutes
        self._spent_s = self._expected_s = 0.0

    def spend(self, seconds: float, *, expected_minutes: float) -> None:
        """Record what a step took."""
        self._spent_s += seconds
        self._expected_s += 60 * expected_minutes

    def minutes_left(self, expected: float) -> float:
        """Return the minutes that steps of *expected* minutes will take, at the pace so far."""
        if self._expected_s > 0:
            return expected * self._spent_s / self._expected_s
        return expected

    def until(self, minutes: float, ahead: float) -> float:
        """Return the instant at which the time of a step ends, in seconds of monotonic time.

        Its share is *minutes* of the minutes *ahead*, which include it.
        """
        if self._until == FOREVER:
            return FOREVER
        now = time.monotonic()
        share = minutes / ahead if ahead else 1.0
        return now + max(0.0, self._until - now) * share
