"""Play a matrix: its steps one after the other, each in a process of its own; what fails is written down and the others go on.

At the end every model's run is read and decided on, and the page over all of them is written.
"""

from __future__ import annotations

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
from agentload.matrix.past import Begun, Done, State, alone_in, begun, changed, is_answered, is_ready, origin, resumed, swept, write_state
from agentload.matrix.steps import Part, Step
from agentload.model.trace import Trace
from agentload.report.advise import advise
from agentload.report.matrix import page
from agentload.report.matrix import write as write_page
from agentload.report.policy import Setting, parse
from agentload.report.record import Measured, Missing, Page, measured
from agentload.report.write import write

NO_RUN: Final = "the replay has not finished a pair of blocks"
ANSWERED: Final = "its questions were answered with more or less thinking: another --out asks them anew"
KILLED: Final = "it was killed in its middle"
GO_ON: Final = "the same command goes on from there"
FOREVER: Final = float("inf")
Told: TypeAlias = Callable[[str], None]
Verb: TypeAlias = Callable[..., Ended]
"""Runs one study; as `child.run`."""
Reporter: TypeAlias = Callable[[Path, str, Path], Ended]
"""Writes the report of a database's run into a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What was played of a matrix: its models with the arms that were left, and what was done of each."""

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
    """Play what is left of a matrix. Raises InterruptError when we are asked to stop; what was done stays done."""
    found = parts(matrix, places, traces, only=only)
    with alone_in(places.root) as lock, Stops().heard() as stops:
        lay_out(matrix, places, traces)
        held = partial(verb, lock=lock)
        reporting = report or partial(reported, parse(matrix.policy, at="policy") if matrix.policy else Setting())
        return _Playing(found, places=places, stops=stops, minutes=minutes, told=told, verb=held, report=reporting).play()


def reported(setting: Setting, database: Path, run: str, folder: Path) -> Ended:
    """Decide on a run and write its report."""
    try:
        write(advise(database, run, setting=setting), folder)
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
        standing = [resumed(part) for part in found]
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
            before = begun(database)
            if before is None or not is_ready(database, before.run):
                self._note(step, Done(outcome="failed", asked=step.asked, seconds=0.0, code=1, said=NO_RUN))
            elif step.kind == "report" or (is_same and not self._is_done(step)):
                self._play(step, place)

    def _is_same(self, part: Part) -> bool:
        """Write down a model's servers, and tell whether its run, where it has begun, is of the same."""
        endpoints_of(part)
        state = self._states[part.name]
        if other := changed(part, state):
            self._told(f"{part.name}: {other}")
            return False
        if not state.origin or begun(self._places.database(part.name)) is None:
            self._keep(part.name, replace(state, origin=origin(part)))
        return True

    def _play(self, step: Step, place: int) -> bool:
        """Run a step and write down how it ended; tell whether it did without a fault."""
        before = begun(self._places.database(step.model))
        run = None if before is None else before.run
        last = self._states[step.model].steps.get(step.name)
        if last is not None and last.settled != step.settled and run is not None and is_answered(self._places.database(step.model), run):
            self._note(step, replace(last, outcome="failed", code=1, said=ANSWERED))
            return False
        made, left = self._asked(step, before, last)
        if left is not None and left <= 0:
            self._note(step, made)
            return True
        self._announce(step)
        self._keep(step.model, self._states[step.model].with_step(step.name, replace(made, outcome="stopped", said=KILLED)))
        began = time.monotonic()
        ended = self._ended(step, run, left)
        seconds = time.monotonic() - began
        if ended.code == 0 and (run is None if step.kind == "replay" else last is None):  # it was played whole
            self._pace.spent(seconds, expected_minutes=self._parts[place].estimates[step.name].minutes)
        self._note(step, _done(replace(made, seconds=round(seconds, 1), code=ended.code), ended))
        self._heed(step.key)
        return ended.code in {0, INTERRUPTED}

    def _ended(self, step: Step, run: str | None, left: int | None) -> Ended:
        study, database = step.left(left), self._places.database(step.model)
        if study is None:
            assert run is not None, "a report is of a run"
            return self._report(database, run, self._places.report(step.model))
        return self._verb(
            study,
            database=database,
            run=run,
            said=self._places.said(step.model, step.name),
            until=self._pace.until(self._parts, step),
            stops=self._stops,
            told=lambda line: self._told(f"  {line}"),
        )

    def _asked(self, step: Step, before: Begun | None, last: Done | None) -> tuple[Done, int | None]:
        """Return what is written down of a step that is done, and the pairs that are left of a sweep."""
        made = Done(outcome="done", asked=step.asked, pairs=step.pairs, settled=step.settled, seconds=0.0, code=0)
        if step.kind != "context" or step.pairs is None or before is None:
            return made, None
        found = swept(self._places.database(step.model), before)
        earlier = 0 if last is None else last.before if last.asked == step.asked else found
        return replace(made, before=earlier), step.pairs - (found - earlier)

    def _look(self, part: Part) -> list[str]:
        """Find the servers that keep a replay from beginning."""
        if begun(self._places.database(part.name)) is not None:
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
        self._told(f"[{number}/{len(steps)}] {step.key} on {', '.join(step.arms)}; about {minutes:.0f} min left in all")

    def _is_done(self, step: Step) -> bool:
        last = self._states[step.model].steps.get(step.name)
        return last is not None and last.outcome == "done" and last.asked == step.asked and (last.pairs or 0) >= (step.pairs or 0)

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
            return replace(made, outcome="stopped", said="its share of the time was over" if ended.is_timed_out else "it was asked to stop")
        case code:
            return replace(made, outcome="failed", said=ended.error or f"ended with code {code}")


class Pace:
    """Know what was expected and what was spent."""

    def __init__(self, *, minutes: float | None, is_done: Callable[[Step], bool]) -> None:
        """Begin now; None: there is all the time in the world."""
        self._until = FOREVER if minutes is None else time.monotonic() + 60 * minutes
        self._is_done = is_done
        self._spent_s = self._expected_s = 0.0

    def spent(self, seconds: float, *, expected_minutes: float) -> None:
        """Note what a step took."""
        self._spent_s += seconds
        self._expected_s += 60 * expected_minutes

    def minutes_left(self, parts: Sequence[Part], step: Step) -> float:
        """Return how long this step and all behind it take, by how long the others took."""
        expected = sum(minutes for _, minutes in self._ahead(parts, step))
        return expected * self._spent_s / self._expected_s if self._expected_s > 0 else expected

    def until(self, parts: Sequence[Part], step: Step) -> float:
        """Return the instant at which a step's share of the time is over; what was measured is always reported."""
        if self._until == FOREVER or step.kind == "report":
            return FOREVER
        ahead = {each.key: minutes for each, minutes in self._ahead(parts, step)}
        now, whole = time.monotonic(), sum(ahead.values())
        return now + max(0.0, self._until - now) * (ahead[step.key] / whole if whole else 1.0)

    def _ahead(self, parts: Sequence[Part], step: Step) -> Iterator[tuple[Step, float]]:
        """Yield this step and those that are to come, with the minutes that each was expected to take."""
        steps = [(each, part.estimates[each.name].minutes) for part in parts for each in part.steps]
        place = next(place for place, (each, _) in enumerate(steps) if each.key == step.key)
        yield from ((each, minutes) for each, minutes in steps[place:] if each.key == step.key or not self._is_done(each))


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
    return made, write_page(made, folder)


def _standing(name: str, matrix: Matrix, played: Played, places: Places, traces: Mapping[str, Trace]) -> tuple[Part, State]:
    """Return a model as it was left, by us or by somebody before us."""
    if (now := next((part for part in played.parts if part.name == name), None)) is not None:
        return now, played.states[name]
    (part,) = parts(matrix, places, traces, only=name)
    return resumed(part)


def _missing(part: Part, state: State) -> Iterator[Missing]:
    for each in part.left_out:
        yield Missing(model=part.name, what=each.config, why=each.why, is_failure=False)
    for config, fault in state.faults.items():
        yield Missing(model=part.name, what=config, why=fault.said.removeprefix(f"{config}: "), code=fault.code)
    if (arms := part.arms) and (first := part.wanted[0]) not in arms:
        yield Missing(model=part.name, what=f"comparison with {first}", why=f"{first} is left out: {arms[0]} is the reference")
    if (other := changed(part, state)) is not None:
        yield Missing(model=part.name, what="changes", why=other)
    if begun(part.places.database(part.name)) is None and not state.steps:
        yield Missing(model=part.name, what="all of it", why=NOT_BEGUN, is_failure=False)
    for step in part.steps:
        done = state.steps.get(step.name)
        if done is not None and done.outcome != "done":
            is_failure = done.outcome == "failed"  # what was stopped goes on the next time
            code = done.code if is_failure else None
            yield Missing(model=part.name, what=step.name, why=done.said or done.outcome, code=code, is_failure=is_failure)
