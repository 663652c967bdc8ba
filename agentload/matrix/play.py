"""Play a matrix step by step, each in a child process;
a failure is recorded and the others continue.

At the end each model's run is reported, and the page over all models is written.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from agentload.errors import AgentloadError, InterruptError
from agentload.matrix import child
from agentload.matrix.child import INTERRUPTED, Ended, Stops
from agentload.matrix.described import Matrix, Places
from agentload.matrix.faults import faults
from agentload.matrix.parts import endpoints_of, lay_out, parts
from agentload.matrix.past import (
    Done,
    ModelRun,
    State,
    can_join,
    diff,
    hold,
    is_answered,
    origin,
    resume,
    run_of,
    sweep_pairs,
    write_state,
)
from agentload.matrix.steps import Part, Step
from agentload.model.trace import Trace
from agentload.report.advise import advise, keep
from agentload.report.matrix import page
from agentload.report.matrix import write as write_page
from agentload.report.record import Measured, Missing, Page, measured
from agentload.report.write import write
from agentload.verdict.policy import Setting, parse

NO_RUN: Final = "the replay has not finished a block pair"
ANSWERED: Final = (
    "its questions were answered with another thinking budget: use another --out to ask them again"
)
KILLED: Final = "it was killed"
GO_ON: Final = "the same command resumes there"
FOREVER: Final = float("inf")
Told: TypeAlias = Callable[[str], None]
Verb: TypeAlias = Callable[..., Ended]
"""Runs one study, as `child.run` does."""
Reporter: TypeAlias = Callable[[Path, str, Path], Ended]
"""Writes a run's report into a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A played matrix: its models with their remaining arms, and the state of each."""

    parts: tuple[Part, ...]
    states: Mapping[str, State]


def play(
    matrix: Matrix,
    places: Places,
    traces: Mapping[str, Trace],
    *,
    only: str | None = None,
    minutes: float | None = None,
    told: Told = lambda _: None,
    verb: Verb = child.run,
    report: Reporter | None = None,
) -> Played:
    """Play the remaining steps.

    Raises InterruptError when asked to stop; finished steps stay finished.
    """
    found = parts(matrix, places, traces, only=only)
    with hold(places.root) as lock, Stops().caught() as stops:
        lay_out(matrix, places, traces)
        held = partial(verb, lock=lock)
        reporting = report or partial(
            report_of, parse(matrix.policy, at="policy") if matrix.policy else Setting()
        )
        return _Playing(
            found,
            places=places,
            stops=stops,
            minutes=minutes,
            told=told,
            verb=held,
            report=reporting,
        ).play()


def report_of(setting: Setting, database: Path, run: str, folder: Path) -> Ended:
    """Decide on a run and write its report."""
    try:
        found = advise(database, run, setting=setting)
        keep(found, database, setting=setting)
        write(found, folder)
    except AgentloadError as error:
        hint = f"; hint: {error.hint}" if error.hint else ""
        return Ended(code=1, is_timed_out=False, error=f"error: {error.message}{hint}")
    return Ended(code=0, is_timed_out=False)


class _Playing:
    """One process's work on a matrix."""

    def __init__(
        self,
        found: Sequence[Part],
        *,
        places: Places,
        stops: Stops,
        minutes: float | None,
        told: Told,
        verb: Verb,
        report: Reporter,
    ) -> None:
        self._places = places
        self._stops = stops
        self._told = told
        self._verb = verb
        self._report = report
        standing = [resume(part) for part in found]
        self._parts = [part for part, _ in standing]
        self._states = {part.name: state for part, state in standing}
        self._pace = Pace(minutes=minutes, is_done=self._is_done)

    def play(self) -> Played:
        """Play model by model."""
        for place in range(len(self._parts)):
            self._play_model(place)
        return Played(parts=tuple(self._parts), states=self._states)

    def _play_model(self, place: int) -> None:
        is_same = True
        while is_same and (part := self._parts[place]).arms:
            is_same = self._is_same(part)
            if not is_same or self._is_done(part.steps[0]) or self._play(part.steps[0], place):
                break
            if not (faulty := self._look(part)):
                break
            self._leave_out(faulty, place)
        for step in self._parts[place].steps[1:]:
            database = self._places.database(step.model)
            before = run_of(database)
            if before is None or not can_join(database, before.run):
                self._note(
                    step,
                    Done(outcome="failed", asked=step.essence, seconds=0.0, code=1, said=NO_RUN),
                )
            elif step.kind == "report" or (is_same and not self._is_done(step)):
                self._play(step, place)

    def _is_same(self, part: Part) -> bool:
        """Write a model's arms files; return whether its run,
        if started, has the same servers, traces and load.
        """
        endpoints_of(part)
        state = self._states[part.name]
        if other := diff(part, state):
            self._told(f"{part.name}: {other}")
            return False
        if not state.origin or run_of(self._places.database(part.name)) is None:
            self._keep(part.name, replace(state, origin=origin(part)))
        return True

    def _play(self, step: Step, place: int) -> bool:
        """Run a step and record how it ended; return whether it succeeded."""
        before = run_of(self._places.database(step.model))
        run = None if before is None else before.run
        last = self._states[step.model].steps.get(step.name)
        if (
            last is not None
            and last.settled != step.fixed
            and run is not None
            and is_answered(self._places.database(step.model), run)
        ):
            self._note(step, replace(last, outcome="failed", code=1, said=ANSWERED))
            return False
        made, left = self._record(step, before, last)
        if left is not None and left <= 0:
            self._note(step, made)
            return True
        self._announce(step)
        self._keep(
            step.model,
            self._states[step.model].with_step(
                step.name, replace(made, outcome="stopped", said=KILLED)
            ),
        )
        began = time.monotonic()
        ended = self._outcome(step, run, left)
        seconds = time.monotonic() - began
        if ended.code == 0 and (
            run is None if step.kind == "replay" else last is None
        ):  # it was played to the end
            self._pace.spent(
                seconds, expected_minutes=self._parts[place].estimates[step.name].minutes
            )
        self._note(step, _done(replace(made, seconds=round(seconds, 1), code=ended.code), ended))
        self._heed(step.key)
        return ended.code in {0, INTERRUPTED}

    def _outcome(self, step: Step, run: str | None, left: int | None) -> Ended:
        study, database = step.with_pairs(left), self._places.database(step.model)
        if study is None:
            assert run is not None, "a report needs a run"
            return self._report(database, run, self._places.report(step.model))
        return self._verb(
            study,
            database=database,
            run=run,
            output=self._places.output(step.model, step.name),
            until=self._pace.until(self._parts, step),
            stops=self._stops,
            say=lambda line: self._told(f"  {line}"),
        )

    def _record(
        self, step: Step, before: ModelRun | None, last: Done | None
    ) -> tuple[Done, int | None]:
        """Return the record of a finished step, and the pairs that a sweep still lacks."""
        made = Done(
            outcome="done",
            asked=step.essence,
            pairs=step.pairs,
            settled=step.fixed,
            seconds=0.0,
            code=0,
        )
        if step.kind != "context" or step.pairs is None or before is None:
            return made, None
        found = sweep_pairs(self._places.database(step.model), before)
        earlier = 0 if last is None else last.before if last.asked == step.essence else found
        return replace(made, before=earlier), step.pairs - (found - earlier)

    def _look(self, part: Part) -> list[str]:
        """Find the servers that keep a replay from starting."""
        if run_of(self._places.database(part.name)) is not None:
            return []
        found = []
        for arm, fault in faults(part, told=self._told, is_stopping=lambda: self._stops.count > 0):
            self._keep(part.name, self._states[part.name].with_fault(arm, fault))
            found.append(arm)
        self._heed(part.name)
        return found

    def _leave_out(self, faulty: Collection[str], place: int) -> None:
        part = self._parts[place]
        self._parts[place] = left = part.without(faulty)
        if part.arms[0] in faulty and left.arms:
            self._told(f"{part.name}: {part.arms[0]} is left out: {left.arms[0]} is the reference")

    def _heed(self, where: str) -> None:
        if self._stops.count:
            raise InterruptError(f"stopped in {where}; what was measured is stored", hint=GO_ON)

    def _announce(self, step: Step) -> None:
        steps = [each for part in self._parts for each in part.steps]
        number = next(number for number, each in enumerate(steps, start=1) if each.key == step.key)
        minutes = max(1.0, self._pace.minutes_left(self._parts, step))
        self._told(
            f"[{number}/{len(steps)}] {step.key} on {', '.join(step.arms)}; about "
            f"{minutes:.0f} min left in all"
        )

    def _is_done(self, step: Step) -> bool:
        last = self._states[step.model].steps.get(step.name)
        return (
            last is not None
            and last.outcome == "done"
            and last.asked == step.essence
            and (last.pairs or 0) >= (step.pairs or 0)
        )

    def _note(self, step: Step, done: Done) -> None:
        self._keep(step.model, self._states[step.model].with_step(step.name, done))
        if done.outcome != "done":
            self._told(f"{step.key}: {done.outcome}: {done.said}")

    def _keep(self, model: str, state: State) -> None:
        self._states[model] = state
        write_state(self._places.state(model), state)


def _done(made: Done, ended: Ended) -> Done:
    match ended.code:
        case 0:
            return made
        case code if code == INTERRUPTED:
            return replace(
                made, outcome="stopped", said="out of time" if ended.is_timed_out else "interrupted"
            )
        case code:
            return replace(made, outcome="failed", said=ended.error or f"ended with code {code}")


class Pace:
    """Compare expected with spent time."""

    def __init__(self, *, minutes: float | None, is_done: Callable[[Step], bool]) -> None:
        """Start now; None: no time limit."""
        self._until = FOREVER if minutes is None else time.monotonic() + 60 * minutes
        self._is_done = is_done
        self._spent_s = self._expected_s = 0.0

    def spent(self, seconds: float, *, expected_minutes: float) -> None:
        """Record what a step took."""
        self._spent_s += seconds
        self._expected_s += 60 * expected_minutes

    def minutes_left(self, parts: Sequence[Part], step: Step) -> float:
        """Return how long this and all later steps will take, judging by those so far."""
        expected = sum(minutes for _, minutes in self._ahead(parts, step))
        return expected * self._spent_s / self._expected_s if self._expected_s > 0 else expected

    def until(self, parts: Sequence[Part], step: Step) -> float:
        """Return the instant at which a step's share
        of the time ends; reports are always written.
        """
        if self._until == FOREVER or step.kind == "report":
            return FOREVER
        ahead = {each.key: minutes for each, minutes in self._ahead(parts, step)}
        now, whole = time.monotonic(), sum(ahead.values())
        return now + max(0.0, self._until - now) * (ahead[step.key] / whole if whole else 1.0)

    def _ahead(self, parts: Sequence[Part], step: Step) -> Iterator[tuple[Step, float]]:
        """Yield this and the later steps with their expected minutes."""
        steps = [(each, part.estimates[each.name].minutes) for part in parts for each in part.steps]
        place = next(place for place, (each, _) in enumerate(steps) if each.key == step.key)
        yield from (
            (each, minutes)
            for each, minutes in steps[place:]
            if each.key == step.key or not self._is_done(each)
        )


NOT_STARTED = "its run has not started"


def ended(
    matrix: Matrix, played: Played, places: Places, traces: Mapping[str, Trace]
) -> tuple[Page, tuple[Path, ...]]:
    """Write the page over all models, played now or earlier; return it with the paths.

    A part of one configuration and the reference is a
    separate comparison, with its own page in its folder.
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
            if (before := run_of(places.database(name))) is not None and places.database(
                name
            ).exists():
                report = places.report(name)
                link = (
                    str(report.relative_to(folder)) if (report / "decision.md").exists() else None
                )
                found.append(
                    measured(
                        places.database(name), before.run, model=name, setting=setting, report=link
                    )
                )
        except AgentloadError as error:
            missing.append(Missing(model=name, what="decision", why=error.message))
    made = page(matrix.name, found, missing)
    return made, write_page(made, folder)


def _standing(
    name: str, matrix: Matrix, played: Played, places: Places, traces: Mapping[str, Trace]
) -> tuple[Part, State]:
    """Return the latest state of a model, from this or an earlier run of the matrix."""
    if (now := next((part for part in played.parts if part.name == name), None)) is not None:
        return now, played.states[name]
    (part,) = parts(matrix, places, traces, only=name)
    return resume(part)


def _missing(part: Part, state: State) -> Iterator[Missing]:
    for each in part.left_out:
        yield Missing(model=part.name, what=each.config, why=each.why, is_failure=False)
    for config, fault in state.faults.items():
        yield Missing(
            model=part.name,
            what=config,
            why=fault.said.removeprefix(f"{config}: "),
            code=fault.code,
        )
    if (arms := part.arms) and (first := part.wanted[0]) not in arms:
        yield Missing(
            model=part.name,
            what=f"comparison with {first}",
            why=f"{first} is left out: {arms[0]} is the reference",
        )
    if (other := diff(part, state)) is not None:
        yield Missing(model=part.name, what="changes", why=other)
    if run_of(part.places.database(part.name)) is None and not state.steps:
        yield Missing(model=part.name, what="all of it", why=NOT_STARTED, is_failure=False)
    for step in part.steps:
        done = state.steps.get(step.name)
        if done is not None and done.outcome != "done":
            is_failure = done.outcome == "failed"  # what was stopped resumes next time
            code = done.code if is_failure else None
            yield Missing(
                model=part.name,
                what=step.name,
                why=done.said or done.outcome,
                code=code,
                is_failure=is_failure,
            )
