"""List a model's steps in order, and what each takes: calls, server starts, minutes, dollars.

Each step is a study and the last one the report.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias, TypeVar, assert_never

from agentload.endpoints.read import EMULATED
from agentload.layout.cost import cost
from agentload.layout.plan import of_study, starts_of
from agentload.layout.traces import merge, sweep
from agentload.matrix.arms import gpus, settings_of
from agentload.matrix.described import LeftOut, Matrix, MatrixFolder, MatrixModel
from agentload.matrix.measure import MIX
from agentload.model.controls import control_of
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.run.lay import with_end
from agentload.run.questions import asking_of, catalog_questions, own_questions, questions_cost
from agentload.study.change import extend
from agentload.study.kinds import Ask, Replay, Search, Sweep
from agentload.study.parts import TraceRef

Kind: TypeAlias = Literal["replay", "context", "concurrency", "accuracy", "report"]
Planned: TypeAlias = Replay | Sweep | Search | Ask
"""Kinds of studies that a matrix is made of."""
S = TypeVar("S", Replay, Sweep, Search, Ask)


class MatrixStep(Record):
    """Describe one study for one model; with *study* None, its report."""

    model: str
    name: str
    kind: Kind
    arms: tuple[str, ...]
    study: Planned | None

    @property
    def key(self) -> str:
        """Name of the step in the matrix."""
        return f"{self.model}/{self.name}"

    @property
    def pairs(self) -> int | None:
        """Pairs of a replay or a length sweep, which can be resumed."""
        if not isinstance(self.study, Replay | Sweep):
            return None
        return self.study.pairs

    def with_pairs(self, pairs: int | None) -> Planned | None:
        """Return its study with this many pairs, such as a sweep still lacks; None: with all."""
        if pairs is None or self.study is None:
            return self.study
        return extend(self.study, pairs=pairs)


class ModelPart(Record, dict=True):
    """Hold one model's share of the matrix: its arms, steps and estimates."""

    matrix: Matrix
    model: MatrixModel
    places: MatrixFolder
    traces: Mapping[str, Trace]
    wanted: tuple[str, ...]
    """All its arms, the reference first."""
    arms: tuple[str, ...]
    tokenizer: str | None = None
    """Local tokenizer.json of the model: with it no server has to be started to count."""
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.model.name

    @cached_property
    def steps(self) -> tuple[MatrixStep, ...]:
        """Steps of the part, in order."""
        if not self.arms:
            return ()
        return tuple(_steps(self))

    @cached_property
    def estimates(self) -> "Mapping[str, StepCost]":
        """Estimate of each step, by name."""
        return {step.name: _estimate(self, step) for step in self.steps}

    def without(self, faulty: Collection[str]) -> "ModelPart":
        """Return the part without some of its arms."""
        return replace(self, arms=tuple(arm for arm in self.arms if arm not in faulty))

    @property
    def is_launched(self) -> bool:
        """Whether we start its servers, one at a time."""
        return self.model.serve is not None or self.model.launch

    @property
    def is_emulated(self) -> bool:
        """Whether its servers are emulated from a profile."""
        return (self.model.endpoints or "").startswith(EMULATED)

    @property
    def source(self) -> str:
        """What its endpoints are arms of: an emulated profile, or its arms file."""
        if self.is_emulated:
            return (self.model.endpoints or "").partition("/")[0]
        return str(self.places.endpoints(self.name).resolve())

    def endpoints(self, arms: Sequence[str]) -> str:
        """Return the endpoints option for these arms."""
        return f"{self.source}/{'+'.join(arms)}"


def _steps(part: ModelPart) -> Iterator[MatrixStep]:
    measure = part.matrix.measure
    names = [each.name for each in part.matrix.workloads]
    # The start of each pair is observed, not planned: more pairs may need more starts.
    control = part.arms[0] if measure.has_control else None
    yield _step(part, "replay", extend(measure.replay, traces=_traces(part, names), aa=control))
    if measure.contexts is not None:
        yield _step(part, "context", measure.contexts)
    if measure.concurrency is not None:
        yield from _searches(part, measure.concurrency, names)
    if measure.accuracy is not None:
        # The tokenizer is found once a server has downloaded the
        # model; the questions have the same length either way.
        tokenizer = measure.accuracy.tokenizer or part.tokenizer
        yield _step(part, "accuracy", extend(measure.accuracy, tokenizer=tokenizer))
    yield MatrixStep(model=part.name, name="report", kind="report", arms=part.arms, study=None)


def _searches(part: ModelPart, template: Search, names: Sequence[str]) -> Iterator[MatrixStep]:
    """Yield a search for each workload and arm."""
    for workload in part.matrix.measure.searched or names:
        if workload not in (MIX, *names):
            continue  # it is for other models
        played = names if workload == MIX else [workload]
        study = extend(template, traces=_traces(part, played))
        for arm in part.arms:
            name = f"concurrency/{workload}/{arm}"
            yield _step(part, "concurrency", study, name=name, arms=(arm,))


def _step(
    part: ModelPart,
    kind: Kind,
    template: S,
    *,
    name: str | None = None,
    arms: tuple[str, ...] | None = None,
) -> MatrixStep:
    """Return a step for all arms, or for some."""
    called = name or kind
    own = arms or part.arms
    servers: dict[str, Any] = {"endpoints": part.endpoints(own)}
    if part.is_launched:
        servers["launch"] = True
        servers["logs"] = str(part.places.logs(part.name, called).resolve())
        servers["start_timeout_s"] = part.matrix.server.start_timeout_s
    else:
        servers["restarts"] = None
    study = extend(template, **servers)
    return MatrixStep(model=part.name, name=called, kind=kind, arms=own, study=study)


def _traces(part: ModelPart, names: Sequence[str]) -> tuple[TraceRef, ...]:
    return tuple(TraceRef(path=str(Path(part.places.trace(name)).resolve())) for name in names)


TRIALS: Final = 14
"""Trials of a search for concurrency.

Four bracket the limit; the others are draws of sessions around it.
"""


class StepCost(Record):
    """State what one step takes; None where it cannot be known beforehand."""

    calls: int | None
    starts: int
    minutes: float
    usd: float | None


def total(costs: Iterable[StepCost]) -> StepCost:
    """Add up what steps take; a figure that is known of none is None."""
    every = tuple(costs)
    calls = [each.calls for each in every if each.calls is not None]
    prices = [each.usd for each in every if each.usd is not None]
    return StepCost(
        calls=sum(calls) if calls else None,
        starts=sum(each.starts for each in every),
        minutes=sum(each.minutes for each in every),
        usd=sum(prices) if prices else None,
    )


def _estimate(part: ModelPart, step: MatrixStep) -> StepCost:
    calls, starts, minutes = _taken(part, step)
    starts = starts if part.is_launched else 0
    minutes += starts * part.matrix.server.start_minutes
    return StepCost(calls=calls, starts=starts, minutes=minutes, usd=_usd(part, step, minutes))


def _taken(part: ModelPart, step: MatrixStep) -> tuple[int | None, int, float]:
    """Return the calls, the starts of servers and the minutes of a step."""
    arms = len(step.arms)
    match step.study:
        case None:
            return 0, 0, 0.0
        case Replay() as study:
            played = step.arms if study.aa is None else (*step.arms, control_of(study.aa))
            mix = merge([part.traces[each.name] for each in part.matrix.workloads])
            # Placement of arms is unknown here and costs nothing.
            ending = with_end(extend(study, swap=False))
            return _played(of_study(ending, mix, played, run=""), arms)
        case Sweep(contexts=contexts, pairs=pairs, output_tokens=output, seed=seed) as study:
            swept = sweep(contexts, pairs=pairs, output=output, seed=seed)
            return _played(of_study(study, swept, step.arms, run=""), arms)
        case Search(trial_s=trial_s):
            return None, 1, TRIALS * trial_s / 60
        case Ask() as study:
            return _asked(study, arms, at_once=1 if part.is_launched else arms)
        case _:
            assert_never(step.study)


def _played(plan: Plan, arms: int) -> tuple[int, int, float]:
    expected = cost(plan)
    calls = sum(expected.calls_by_arm.values())
    return calls, starts_of(plan) + arms - 1, expected.minutes


def _asked(study: Ask, arms: int, *, at_once: int) -> tuple[int, int, float]:
    if study.own is None:
        questions = catalog_questions(asking_of(study))
    else:
        questions = own_questions(
            Path(study.own), repetitions=study.repetitions, form=study.own_format
        )
    expected = questions_cost(
        questions,
        arms=at_once,
        concurrency=study.concurrency,
        thinking_tokens=study.thinking_tokens,
    )
    # Without a local tokenizer the reference is first started to count tokens.
    starts = arms + (study.tokenizer is None and study.own is None)
    rounds = arms // at_once
    return expected.questions * rounds, starts, expected.minutes * rounds


def _usd(part: ModelPart, step: MatrixStep, minutes: float) -> float | None:
    server = part.matrix.server
    if server.price_per_hour is None or not part.is_launched:
        return None
    configs = [config for config in part.matrix.configs if config.name in step.arms]
    counts = [gpus(settings_of(config, part.model, server)) for config in configs]
    # How the configurations share the time is unknown here.
    paid = server.gpus or (fmean(counts) if counts else 1)
    return server.price_per_hour * paid * minutes / 60
