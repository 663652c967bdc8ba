"""What each step takes before anything is started: calls, starts of servers, minutes, dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, assert_never

from agentload.experiment.asking import cost as asking_cost
from agentload.experiment.asking.plan import DEFAULT_TASKS, asking, contexts
from agentload.experiment.asking.source import Generated
from agentload.experiment.layout.contexts import lengths, sweep
from agentload.experiment.layout.cost import Cost, cost
from agentload.experiment.layout.merge import merged
from agentload.experiment.layout.plan import plan
from agentload.experiment.layout.starts import starts_of, with_starts
from agentload.experiment.matrix.parts import Accuracy, Measure, Server
from agentload.experiment.matrix.steps import Planned, Step
from agentload.model.controls import control_of
from agentload.model.plan import Budget, ClosedLoop, Load, Plan, Recorded, WaitScale
from agentload.model.trace import Trace

TRIALS: Final = 8
"""Of a search for concurrency: doubling to some hundreds and halving back."""
PROBE_MINUTES: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one step takes. None: nobody can tell beforehand."""

    calls: int | None
    starts: int
    minutes: float
    usd: float | None


def estimates(planned: Planned, steps: Sequence[Step], traces: Mapping[str, Trace]) -> dict[str, Estimate]:
    """Return what each step of a model takes, by its name."""
    found = {}
    server = planned.matrix.server
    for step in steps:
        calls, starts, minutes = _taken(planned, step, traces)
        starts = starts if planned.is_launched else 0
        minutes += starts * server.start_minutes
        found[step.name] = Estimate(calls=calls, starts=starts, minutes=minutes, usd=_usd(server, minutes) if planned.is_launched else None)
    return found


def _taken(planned: Planned, step: Step, traces: Mapping[str, Trace]) -> tuple[int | None, int, float]:
    measure, arms = planned.matrix.measure, len(step.arms)
    match step.kind:
        case "replay":
            made = replayed(measure, step.arms, [traces[each.name] for each in planned.matrix.workloads], is_launched=planned.is_launched)
            return _played(cost(made), starts_of(made) + arms - 1)
        case "context":
            assert measure.contexts is not None, step.key
            wanted = measure.contexts
            swept = sweep(lengths(wanted.lengths), pairs=wanted.pairs, output=wanted.output, seed=measure.seed)
            made = plan(swept, step.arms, run="", seed=measure.seed, pairs=wanted.pairs, load=Load(arrivals=ClosedLoop(sessions=1)))
            return _played(cost(made), wanted.pairs * arms + arms - 1)
        case "concurrency":
            assert measure.concurrency is not None, step.key
            return None, 1, TRIALS * measure.concurrency.seconds / 60
        case "accuracy":
            assert measure.accuracy is not None, step.key
            at_once = 1 if planned.is_launched else arms
            asked = _asked(measure.accuracy, measure.seed, at_once)
            rounds = arms // at_once
            return asked.questions * rounds, arms, asked.minutes * rounds
        case "isolation":
            return None, 2 * arms, 2 * arms * PROBE_MINUTES
        case "report":
            return 0, 0, 0.0
        case _:
            assert_never(step.kind)


def replayed(measure: Measure, arms: Sequence[str], traces: Sequence[Trace], *, is_launched: bool) -> Plan:
    """Return the plan that a replay of these traces makes."""
    played = (*arms, control_of(arms[0])) if measure.aa else arms
    arrivals = Recorded() if measure.sessions is None else ClosedLoop(sessions=measure.sessions)
    load = Load(
        arrivals=arrivals,
        waits={kind: WaitScale(cap_s=seconds) for kind, seconds in measure.waits.items()},
        budget=Budget(calls=measure.max_calls, seconds=measure.duration_s),
    )
    made = plan(merged(traces), played, run="", seed=measure.seed, pairs=measure.pairs, load=load)
    return with_starts(made, measure.restarts) if is_launched else made


def _played(found: Cost, starts: int) -> tuple[int, int, float]:
    return sum(found.calls_by_arm.values()), starts, found.minutes


@cache
def _asked(wanted: Accuracy, seed: int, arms: int) -> asking_cost.Cost:
    made = asking(
        tasks=wanted.tasks or DEFAULT_TASKS,
        contexts=contexts(wanted.contexts),
        depths=wanted.depths,
        items=wanted.items,
        repetitions=1,
        seed=seed,
    )
    return asking_cost.cost(Generated(asking=made), arms=arms, concurrency=wanted.concurrency, thinking_tokens=wanted.thinking)


def _usd(server: Server, minutes: float) -> float | None:
    return None if server.price_per_hour is None else server.price_per_hour * (server.gpus or 1) * minutes / 60
