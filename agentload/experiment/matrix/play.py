"""Play a matrix: its steps one after the other, each in a process of its own; what fails is written down and the others go on."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import EMULATED, read
from agentload.errors import InterruptError
from agentload.experiment.matrix.arms import chosen
from agentload.experiment.matrix.child import Ended, Stops, run
from agentload.experiment.matrix.faults import fault, fault_of_served
from agentload.experiment.matrix.parts import LeftOut, Matrix
from agentload.experiment.matrix.past import begun, is_stored, swept
from agentload.experiment.matrix.places import Places
from agentload.experiment.matrix.plan import Part, document, parts
from agentload.experiment.matrix.state import Done, State, alone_in, read_state, write_state
from agentload.experiment.matrix.steps import Step
from agentload.model.trace import Trace
from agentload.tracefile import write

NO_RUN: Final = "the replay finished no pair of blocks"
FOREVER: Final = float("inf")
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A matrix after it was played: its models, with the arms that were left, and what was done."""

    parts: tuple[Part, ...]
    state: State


def play(matrix: Matrix, places: Places, traces: Mapping[str, Trace], *, only: str | None, minutes: float | None, told: Told) -> Outcome:
    """Play what is left of a matrix. Raises InterruptError when we are asked to stop; what was done stays done."""
    found = parts(matrix, places, traces, only=only)
    with alone_in(places.root), Stops().heard() as stops:
        _lay_out(matrix, places, traces)
        return _Playing(found, places=places, traces=traces, stops=stops, minutes=minutes, told=told).play()


def _lay_out(matrix: Matrix, places: Places, traces: Mapping[str, Trace]) -> None:
    for name, trace in traces.items():
        places.trace(name).parent.mkdir(parents=True, exist_ok=True)
        write(places.trace(name), trace)
    if matrix.policy:
        places.policy.write_text(yaml.safe_dump(dict(matrix.policy), sort_keys=False), encoding="utf-8")


class _Playing:
    """One process's work on a matrix."""

    def __init__(
        self, found: Sequence[Part], *, places: Places, traces: Mapping[str, Trace], stops: Stops, minutes: float | None, told: Told
    ) -> None:
        self._places = places
        self._traces = traces
        self._parts = list(found)
        self._stops = stops
        self._told = told
        self._until = FOREVER if minutes is None else time.monotonic() + 60 * minutes
        self._state = read_state(places.state)
        self._spent_s = self._expected_s = 0.0

    def play(self) -> Outcome:
        for place, part in enumerate(self._parts):
            self._parts[place] = self._remembered(part)
        for place in range(len(self._parts)):
            self._play_model(place)
        return Outcome(parts=tuple(self._parts), state=self._state)

    def _remembered(self, part: Part) -> Part:
        """Leave out the servers that are known not to start, and those that a run which has begun knows nothing of."""
        launches = {endpoint.name: shlex.join(endpoint.launch.command) for endpoint in _endpoints(part) if endpoint.launch is not None}
        faulty = {
            arm: found.said
            for arm in part.planned.arms
            if (found := self._state.faults.get(f"{part.name}/{arm}")) is not None and found.launch == launches.get(arm)
        }
        left = part.without(faulty, self._traces)
        before = begun(self._places.database(part.name))
        if before is None:
            return left
        late = {arm: "added after its run began: another --out measures it" for arm in left.planned.arms if arm not in before.arms}
        out = tuple(LeftOut(model=part.name, config=arm, why=why) for arm, why in late.items())
        return replace(left.without(late, self._traces), left_out=(*left.left_out, *out))

    def _play_model(self, place: int) -> None:
        part = self._parts[place]
        while part.planned.arms:
            self._write_arms(part)
            step = part.steps[0]
            if self._is_done(step) or self._play(step, place):
                break
            faulty = self._look(part)
            if not faulty:
                break
            part = self._parts[place] = part.without(faulty, self._traces)
        for step in part.steps[1:]:
            if begun(self._places.database(part.name)) is None or not is_stored(self._places.database(part.name)):
                self._note(step, Done(outcome="failed", command=_command(step), seconds=0.0, code=1, said=NO_RUN))
            elif step.kind == "report" or not self._is_done(step):
                self._play(step, place)

    def _play(self, step: Step, place: int) -> bool:
        """Run a step and write down how it ended; tell whether it did without a fault."""
        before = begun(self._places.database(step.model))
        left = None
        if step.kind == "context" and before is not None and step.pairs is not None:
            left = step.pairs - swept(self._places.database(step.model), before.run, len(step.arms))
            if left <= 0:
                self._note(step, Done(outcome="done", command=_command(step), seconds=0.0, code=0))
                return True
        self._announce(step, place)
        began = time.monotonic()
        said = self._places.said(step.model, step.name)
        typed = step.typed(None if before is None else before.run, pairs=left)
        ended = run(typed, said=said, until=self._share(step, place), stops=self._stops, told=lambda line: self._told(f"  {line}"))
        seconds = time.monotonic() - began
        self._spent_s += seconds
        self._expected_s += 60 * self._parts[place].estimates[step.name].minutes
        self._note(step, _done(step, ended, seconds))
        if self._stops.count:
            raise InterruptError(f"stopped in {step.key}; what was measured is stored", hint="the same command goes on from there")
        return ended.code in {0, 130}

    def _look(self, part: Part) -> dict[str, str]:
        """Try the servers one by one after a replay that failed before it began; return what is wrong with which."""
        if begun(self._places.database(part.name)) is not None or (part.planned.model.endpoints or "").startswith(EMULATED):
            return {}
        found: dict[str, str] = {}
        last = _last_started(self._places.logs(part.name, "replay"))
        for endpoint in sorted(_endpoints(part), key=lambda each: each.name != last):
            if found and endpoint.name != last:
                break  # the next replay tells of the others
            self._told(
                f"{part.name}/{endpoint.name}: does its server start?"
                if part.planned.is_launched
                else f"{part.name}/{endpoint.name}: does it answer?"
            )
            if part.planned.is_launched and endpoint.launch is not None:
                logs = self._places.logs(part.name, "faults")
                start_s = part.planned.matrix.server.start_timeout_s
                wrong = fault(endpoint, logs=logs, start_s=start_s, is_stopping=lambda: self._stops.count > 0)
            else:
                wrong = fault_of_served(endpoint)
            if self._stops.count:
                raise InterruptError(f"stopped while {part.name}/{endpoint.name} was looked at", hint="the same command goes on from there")
            if wrong is not None:
                self._told(f"{part.name}/{endpoint.name}: left out: {wrong.said}" + ("" if wrong.code is None else f" (code {wrong.code})"))
                self._state = self._state.with_fault(f"{part.name}/{endpoint.name}", wrong)
                write_state(self._places.state, self._state)
                found[endpoint.name] = wrong.said
        return found

    def _announce(self, step: Step, place: int) -> None:
        steps = [each for part in self._parts for each in part.steps]
        number = next(number for number, each in enumerate(steps, start=1) if each.key == step.key)
        minutes = self._paced(sum(found for _, found in self._left(place, step)))
        self._told(f"[{number}/{len(steps)}] {step.key} on {', '.join(step.arms)}; about {minutes:.0f} min left in all")

    def _left(self, place: int, step: Step) -> Iterator[tuple[Step, float]]:
        """Yield this step and those that are to come, with the minutes that each was expected to take."""
        own = self._parts[place]
        behind = own.steps[own.steps.index(step) :]
        for part, steps in ((own, behind), *((part, part.steps) for part in self._parts[place + 1 :])):
            yield from ((each, part.estimates[each.name].minutes) for each in steps if each is step or not self._is_done(each))

    def _paced(self, minutes: float) -> float:
        """Correct expected minutes by how long the others took."""
        return minutes * self._spent_s / self._expected_s if self._expected_s > 0 else minutes

    def _share(self, step: Step, place: int) -> float:
        """Return the instant at which a step's share of the time is over."""
        if self._until == FOREVER or step.kind == "report":
            return FOREVER
        left = dict(self._left(place, step))
        whole = sum(left.values())
        now = time.monotonic()
        return now + max(0.0, self._until - now) * (left[step] / whole if whole else 1.0)

    def _is_done(self, step: Step) -> bool:
        before = self._state.steps.get(step.key)
        return before is not None and before.outcome == "done" and before.command == _command(step)

    def _note(self, step: Step, done: Done) -> None:
        self._state = self._state.with_step(step.key, done)
        write_state(self._places.state, self._state)
        if done.outcome != "done":
            self._told(f"{step.key}: {done.outcome}: {done.said}")

    def _write_arms(self, part: Part) -> None:
        whole = document(part.planned)
        if whole is None:
            return
        for arm in (None, *part.planned.arms):
            path = self._places.endpoints(part.name, arm)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = whole if arm is None else chosen(whole, [arm])
            path.write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")


def _endpoints(part: Part) -> tuple[Endpoint, ...]:
    """Return the endpoints of a model as its arms file has them; none where they are emulated."""
    given = part.planned.model.endpoints or ""
    if given.startswith(EMULATED):
        return ()
    whole = document(part.planned)
    if whole is None:
        found = read(given)
    else:
        path = part.planned.places.endpoints(part.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(whole, sort_keys=False, width=1000), encoding="utf-8")
        found = read(str(path))
    assert isinstance(found, tuple), given
    return tuple(endpoint for endpoint in found if endpoint.name in part.planned.arms)


def _last_started(logs: Path) -> str | None:
    """Name the server whose log is the newest."""
    return max(logs.glob("start-*/*.log"), key=lambda log: log.stat().st_mtime_ns).stem if any(logs.glob("start-*/*.log")) else None


def _done(step: Step, ended: Ended, seconds: float) -> Done:
    made = Done(outcome="failed", command=_command(step), seconds=round(seconds, 1), code=ended.code)
    match ended.code:
        case 0:
            return replace(made, outcome="done")
        case 130:
            return replace(made, outcome="stopped", said="its share of the time was over" if ended.is_timed_out else "it was asked to stop")
        case code:
            return replace(made, said=ended.error or f"ended with code {code}")


def _command(step: Step) -> str:
    return shlex.join(step.typed(None))
