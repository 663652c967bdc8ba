"""What each step takes before anything is started: calls, starts of servers, minutes, dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, assert_never

from agentload.layout.cost import Cost, cost
from agentload.layout.plan import plan, starts_of, with_starts
from agentload.layout.traces import merged, sweep
from agentload.matrix.arms import gpus, settings_of
from agentload.matrix.steps import Planned, Step
from agentload.model.controls import control_of
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.trace import Trace
from agentload.run.questions import Generated, QuestionsCost, asking, questions_cost
from agentload.study.kinds import Ask, Probe, Replay, Search, Sweep
from agentload.study.parts import Live

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
    arms = len(step.arms)
    match step.study:
        case None:
            return 0, 0, 0.0
        case Replay() as study:
            made = replayed(study, step.arms, [traces[each.name] for each in planned.matrix.workloads])
            return _played(cost(made), starts_of(made) + arms - 1)
        case Sweep(contexts=contexts, pairs=pairs, output_tokens=output, seed=seed):
            swept = sweep(contexts, pairs=pairs, output=output, seed=seed)
            made = plan(swept, step.arms, run="", seed=seed, pairs=pairs, load=Load(arrivals=ClosedLoop(sessions=1)))
            return _played(cost(made), pairs * arms + arms - 1)
        case Search(trial_s=trial_s):
            return None, 1, TRIALS * trial_s / 60
        case Ask() as study:
            at_once = 1 if planned.is_launched else arms
            asked = _asked(study, at_once)
            rounds = arms // at_once
            # Without a tokenizer here the reference is started to count, before it is asked.
            return asked.questions * rounds, arms + (planned.tokenizer is None), asked.minutes * rounds
        case Probe():
            return None, 2 * arms, 2 * arms * PROBE_MINUTES
        case _:
            assert_never(step.study)


def replayed(study: Replay, arms: Sequence[str], traces: Sequence[Trace]) -> Plan:
    """Return the plan that a replay of these traces makes."""
    played = arms if study.aa is None else (*arms, control_of(study.aa))
    made = plan(
        merged(traces),
        played,
        run="",
        seed=study.seed,
        pairs=study.pairs,
        design=study.design,
        cache=study.cache,
        load=study.load.planned(),
    )
    return with_starts(made, study.servers.restarts) if isinstance(study.servers, Live) and study.servers.launch else made


def _played(found: Cost, starts: int) -> tuple[int, int, float]:
    return sum(found.calls_by_arm.values()), starts, found.minutes


def _asked(study: Ask, arms: int) -> QuestionsCost:
    made = asking(
        tasks=study.tasks, contexts=study.contexts, depths=study.depths, items=study.items, repetitions=study.repetitions, seed=study.seed
    )
    return questions_cost(Generated(asking=made), arms=arms, concurrency=study.concurrency, thinking_tokens=study.thinking_tokens)


def _usd(planned: Planned, step: Step, minutes: float) -> float | None:
    server = planned.matrix.server
    if server.price_per_hour is None or not planned.is_launched:
        return None
    configs = [config for config in planned.matrix.configs if config.name in step.arms]
    counts = [gpus(settings_of(config, planned.model, server)) for config in configs]
    # Which of them takes how long is not known here.
    paid = server.gpus or (fmean(counts) if counts else 1)
    return server.price_per_hour * paid * minutes / 60
