"""What each step takes before anything is started: calls, starts of servers, minutes, dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Final, assert_never

from agentload.layout.cost import Cost, cost
from agentload.layout.plan import plan, starts_of, with_starts
from agentload.layout.traces import SMALLEST, merged, sweep
from agentload.matrix.arms import settings_of
from agentload.matrix.described import Accuracy, Measure
from agentload.matrix.settings import gpus
from agentload.matrix.steps import Planned, Step
from agentload.model.controls import control_of
from agentload.model.plan import Budget, ClosedLoop, Load, Plan, Recorded, WaitScale
from agentload.model.trace import Trace
from agentload.run.questions import DEFAULT_TASKS, Generated, QuestionsCost, asking, questions_cost
from agentload.study.quantity import lengths

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
        found[step.name] = Estimate(calls=calls, starts=starts, minutes=minutes, usd=_usd(planned, step, minutes))
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
            contexts = lengths(wanted.lengths, option="contexts", least=SMALLEST)
            swept = sweep(contexts, pairs=wanted.pairs, output=wanted.output, seed=measure.seed)
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
            # Without a tokenizer here the reference is started to count, before it is asked.
            return asked.questions * rounds, arms + (planned.tokenizer is None), asked.minutes * rounds
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
def _asked(wanted: Accuracy, seed: int, arms: int) -> QuestionsCost:
    made = asking(
        tasks=wanted.tasks or DEFAULT_TASKS,
        contexts=lengths(wanted.contexts, option="contexts"),
        depths=wanted.depths,
        items=wanted.items,
        repetitions=1,
        seed=seed,
    )
    return questions_cost(Generated(asking=made), arms=arms, concurrency=wanted.concurrency, thinking_tokens=wanted.thinking)


def _usd(planned: Planned, step: Step, minutes: float) -> float | None:
    server = planned.matrix.server
    if server.price_per_hour is None or not planned.is_launched:
        return None
    configs = [config for config in planned.matrix.configs if config.name in step.arms]
    counts = [gpus(settings_of(config, planned.model, server)) for config in configs]
    # Which of them takes how long is not known here.
    paid = server.gpus or (fmean(counts) if counts else 1)
    return server.price_per_hour * paid * minutes / 60
