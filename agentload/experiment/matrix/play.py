"""Play a matrix: its steps one after the other, each in a process of its own; what fails is written down and the others go on."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from agentload.errors import InterruptError
from agentload.experiment.matrix import child
from agentload.experiment.matrix.child import INTERRUPTED, Ended, Stops
from agentload.experiment.matrix.faults import last_started, look_at
from agentload.experiment.matrix.files import endpoints_of, lay_out
from agentload.experiment.matrix.pace import Pace
from agentload.experiment.matrix.parts import LeftOut, Matrix
from agentload.experiment.matrix.past import begun, swept
from agentload.experiment.matrix.places import Places
from agentload.experiment.matrix.plan import Part, parts
from agentload.experiment.matrix.state import Done, State, alone_in, read_state, write_state
from agentload.experiment.matrix.steps import Step
from agentload.model.trace import Trace

NO_RUN: Final = "the replay has not finished a pair of blocks"
LATE: Final = "added after the run of its model began: another --out measures it"
GO_ON: Final = "the same command goes on from there"
Told: TypeAlias = Callable[[str], None]
Verb: TypeAlias = Callable[..., Ended]
"""Runs one verb; as `child.run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A matrix after it was played: its models, with the arms that were left, and what was done."""

    parts: tuple[Part, ...]
    state: State


def play(
    matrix: Matrix,
    places: Places,
    traces: Mapping[str, Trace],
    *,
    only: str | None = None,
    minutes: float | None = None,
    told: Told = lambda _: None,
    verb: Verb = child.run,
) -> Outcome:
    """Play what is left of a matrix. Raises InterruptError when we are asked to stop; what was done stays done."""
    found = parts(matrix, places, traces, only=only)
    with alone_in(places.root), Stops().heard() as stops:
        lay_out(matrix, places, traces)
        return _Playing(found, places=places, traces=traces, stops=stops, minutes=minutes, told=told, verb=verb).play()


class _Playing:
    """One process's work on a matrix."""

    def __init__(
        self,
        found: Sequence[Part],
        *,
        places: Places,
        traces: Mapping[str, Trace],
        stops: Stops,
        minutes: float | None,
        told: Told,
        verb: Verb,
    ) -> None:
        self._parts = list(found)
        self._places = places
        self._traces = traces
        self._stops = stops
        self._told = told
        self._verb = verb
        self._state = read_state(places.state)
        self._pace = Pace(minutes=minutes, is_done=self._is_done)

    def play(self) -> Outcome:
        """Play model by model."""
        self._parts = [self._remembered(part) for part in self._parts]
        for place in range(len(self._parts)):
            self._play_model(place)
        return Outcome(parts=tuple(self._parts), state=self._state)

    def _remembered(self, part: Part) -> Part:
        """Leave out the servers that are known not to start, and those that a run which has begun knows nothing of."""
        launches = {each.name: shlex.join(each.launch.command) for each in endpoints_of(part.planned) if each.launch is not None}
        known = {arm: self._state.faults.get(f"{part.name}/{arm}") for arm in part.planned.arms}
        left = part.without([arm for arm, found in known.items() if found is not None and found.launch == launches.get(arm)], self._traces)
        before = begun(self._places.database(part.name))
        if before is None:
            return left
        late = [arm for arm in left.planned.arms if arm not in before.arms]
        out = tuple(LeftOut(model=part.name, config=arm, why=LATE) for arm in late)
        return replace(left.without(late, self._traces), left_out=(*left.left_out, *out))

    def _play_model(self, place: int) -> None:
        while (part := self._parts[place]).planned.arms:
            endpoints_of(part.planned)
            step = part.steps[0]
            if self._is_done(step) or self._play(step, place):
                break
            faulty = self._look(part)
            if not faulty:
                break
            self._parts[place] = part.without(faulty, self._traces)
        for step in self._parts[place].steps[1:]:
            database = self._places.database(step.model)
            if begun(database) is None or not database.exists():
                self._note(step, Done(outcome="failed", command=_command(step), seconds=0.0, code=1, said=NO_RUN))
            elif step.kind == "report" or not self._is_done(step):
                self._play(step, place)

    def _play(self, step: Step, place: int) -> bool:
        """Run a step and write down how it ended; tell whether it did without a fault."""
        database = self._places.database(step.model)
        before = begun(database)
        left = None
        if step.pairs is not None and before is not None:
            left = step.pairs - swept(database, before.run, len(step.arms))
            if left <= 0:
                self._note(step, Done(outcome="done", command=_command(step), seconds=0.0, code=0))
                return True
        self._announce(step)
        began = time.monotonic()
        ended = self._verb(
            step.typed(None if before is None else before.run, pairs=left),
            said=self._places.said(step.model, step.name),
            until=self._pace.until(self._parts, step),
            stops=self._stops,
            told=lambda line: self._told(f"  {line}"),
        )
        seconds = time.monotonic() - began
        self._pace.spent(seconds, expected_minutes=self._parts[place].estimates[step.name].minutes)
        self._note(step, _done(step, ended, seconds))
        self._heed(step.key)
        return ended.code in {0, INTERRUPTED}

    def _look(self, part: Part) -> list[str]:
        """Find the servers that keep a replay from beginning; the one that was started last is the first to be suspected."""
        if begun(self._places.database(part.name)) is not None:
            return []
        last = last_started(self._places.logs(part.name, "replay"))
        found: list[str] = []
        for endpoint in sorted(endpoints_of(part.planned), key=lambda each: each.name != last):
            if found and endpoint.name != last:
                break  # the next replay tells of the others
            key = f"{part.name}/{endpoint.name}"
            self._told(f"{key}: does its server {'start' if part.planned.is_launched else 'answer'}?")
            wrong = look_at(
                endpoint,
                is_launched=part.planned.is_launched,
                logs=self._places.logs(part.name, "faults"),
                start_s=part.planned.matrix.server.start_timeout_s,
                is_stopping=lambda: self._stops.count > 0,
            )
            self._heed(key)
            if wrong is not None:
                self._told(f"{key}: left out: {wrong.said}" + ("" if wrong.code is None else f" (code {wrong.code})"))
                self._keep(self._state.with_fault(key, wrong))
                found.append(endpoint.name)
        return found

    def _heed(self, where: str) -> None:
        if self._stops.count:
            raise InterruptError(f"stopped in {where}; what was measured is stored", hint=GO_ON)

    def _announce(self, step: Step) -> None:
        steps = [each for part in self._parts for each in part.steps]
        number = next(number for number, each in enumerate(steps, start=1) if each.key == step.key)
        minutes = max(1.0, self._pace.minutes_left(self._parts, step))
        self._told(f"[{number}/{len(steps)}] {step.key} on {', '.join(step.arms)}; about {minutes:.0f} min left in all")

    def _is_done(self, step: Step) -> bool:
        before = self._state.steps.get(step.key)
        return before is not None and before.outcome == "done" and before.command == _command(step)

    def _note(self, step: Step, done: Done) -> None:
        self._keep(self._state.with_step(step.key, done))
        if done.outcome != "done":
            self._told(f"{step.key}: {done.outcome}: {done.said}")

    def _keep(self, state: State) -> None:
        self._state = state
        write_state(self._places.state, state)


def _done(step: Step, ended: Ended, seconds: float) -> Done:
    made = Done(outcome="failed", command=_command(step), seconds=round(seconds, 1), code=ended.code)
    match ended.code:
        case 0:
            return replace(made, outcome="done")
        case code if code == INTERRUPTED:
            return replace(made, outcome="stopped", said="its share of the time was over" if ended.is_timed_out else "it was asked to stop")
        case code:
            return replace(made, said=ended.error or f"ended with code {code}")


def _command(step: Step) -> str:
    return shlex.join(step.typed(None))
