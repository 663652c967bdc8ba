"""A model's steps in order, each a study and the last one the report,
and what each will take: calls, server starts, minutes, dollars.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias, TypeVar, assert_never

from agentload.endpoints.read import EMULATED
from agentload.layout.cost import Cost, cost
from agentload.layout.plan import of_study, starts_of
from agentload.layout.traces import merged, sweep
from agentload.matrix.arms import gpus, settings_of
from agentload.matrix.described import LeftOut, Matrix, Model, Places
from agentload.matrix.measure import MIX
from agentload.model.controls import control_of
from agentload.model.trace import Trace
from agentload.run.questions import asking_of, generated, questions_cost, supplied
from agentload.study.change import essence, extended
from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import TraceRef

Kind: TypeAlias = Literal["replay", "context", "concurrency", "accuracy", "isolation", "report"]
S = TypeVar("S", Replay, Sweep, Search, Ask, Probe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One study for one model; None: its report."""

    model: str
    name: str
    kind: Kind
    arms: tuple[str, ...]
    study: Study | None

    @property
    def key(self) -> str:
        """Return the step's name in the matrix."""
        return f"{self.model}/{self.name}"

    @property
    def essence(self) -> str:
        """Return the identity of its measurement, wherever the matrix is kept."""
        return self.kind if self.study is None else essence(self.study)

    @property
    def pairs(self) -> int | None:
        """Return the pairs of a replay or a length sweep, which can be resumed."""
        return self.study.pairs if isinstance(self.study, Replay | Sweep) else None

    @property
    def fixed(self) -> str:
        """Return the settings that may not change once it has measured something."""
        return f"thinking {self.study.thinking_tokens}" if isinstance(self.study, Ask) else ""

    def with_pairs(self, pairs: int | None) -> Study | None:
        """Return its study with this many pairs, those a sweep still lacks; None: with all."""
        return (
            self.study if pairs is None or self.study is None else extended(self.study, pairs=pairs)
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """One model's share of the matrix: its arms, steps and estimates."""

    matrix: Matrix
    model: Model
    places: Places
    traces: Mapping[str, Trace]
    wanted: tuple[str, ...]
    """All its arms, the reference first."""
    arms: tuple[str, ...]
    tokenizer: str | None = None
    """The model's tokenizer.json if local: then no server has to be started to count."""
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.model.name

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return its steps, in order."""
        return tuple(_steps(self)) if self.arms else ()

    @cached_property
    def estimates(self) -> "Mapping[str, Estimate]":
        """Return the estimate of each step, by name."""
        return {step.name: _estimate(self, step) for step in self.steps}

    def without(self, faulty: Collection[str]) -> "Part":
        """Return the part without some of its arms."""
        return replace(self, arms=tuple(arm for arm in self.arms if arm not in faulty))

    @property
    def is_launched(self) -> bool:
        """Return whether we start its servers, one at a time."""
        return self.model.serve is not None or self.model.launch

    @property
    def is_emulated(self) -> bool:
        """Return whether its servers are emulated from a profile."""
        return (self.model.endpoints or "").startswith(EMULATED)

    def endpoints(self, *arms: str) -> str:
        """Return the endpoints option for these arms, or all."""
        if self.is_emulated:
            return f"{(self.model.endpoints or '').partition('/')[0]}/{'+'.join(arms or self.arms)}"
        return str(self.places.endpoints(self.model.name, arms[0] if arms else None).resolve())


def _steps(part: Part) -> Iterator[Step]:
    measure = part.matrix.measure
    names = [each.name for each in part.matrix.workloads]
    control = part.arms[0] if measure.has_control else None
    # The start of each pair is observed, not planned: more pairs may need more starts.
    yield _step(part, "replay", extended(measure.replay, traces=_traces(part, names), aa=control))
    if measure.contexts is not None:
        yield _step(part, "context", measure.contexts)
    if measure.concurrency is not None:
        for workload in [each for each in measure.searched or names if each in (MIX, *names)]:
            study = extended(
                measure.concurrency, traces=_traces(part, names if workload == MIX else [workload])
            )
            for arm in part.arms:
                yield _step(
                    part, "concurrency", study, name=f"concurrency/{workload}/{arm}", arm=arm
                )
    if measure.accuracy is not None:
        # Found once a server has downloaded the model;
        # the questions have the same length either way.
        yield _step(
            part,
            "accuracy",
            extended(measure.accuracy, tokenizer=measure.accuracy.tokenizer or part.tokenizer),
        )
    if measure.isolation is not None and part.is_launched:
        yield _step(part, "isolation", measure.isolation)
    yield Step(model=part.model.name, name="report", kind="report", arms=part.arms, study=None)


def _step(
    part: Part, kind: Kind, template: S, *, name: str | None = None, arm: str | None = None
) -> Step:
    """Return a step for all arms, or for one."""
    called = name or kind
    whom: dict[str, Any] = {
        "endpoints": part.endpoints(*(() if arm is None else (arm,))),
        "launch": part.is_launched and kind != "isolation",
    }
    if part.is_launched:
        whom |= {
            "logs": str(part.places.logs(part.model.name, called).resolve()),
            "start_timeout_s": part.matrix.server.start_timeout_s,
        }
    else:
        whom["restarts"] = None
    study = extended(template, **whom)
    return Step(
        model=part.model.name,
        name=called,
        kind=kind,
        arms=part.arms if arm is None else (arm,),
        study=study,
    )


def _traces(part: Part, names: Sequence[str]) -> tuple[TraceRef, ...]:
    return tuple(TraceRef(path=str(Path(part.places.trace(name)).resolve())) for name in names)


TRIALS: Final = 14
"""Of a search for concurrency: four that bracket the limit, and draws of sessions around it."""
PROBE_MINUTES: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one step takes; None where it cannot be known beforehand."""

    calls: int | None
    starts: int
    minutes: float
    usd: float | None


def _estimate(part: Part, step: Step) -> Estimate:
    calls, starts, minutes = _taken(part, step)
    starts = starts if part.is_launched else 0
    minutes += starts * part.matrix.server.start_minutes
    return Estimate(calls=calls, starts=starts, minutes=minutes, usd=_usd(part, step, minutes))


def _taken(part: Part, step: Step) -> tuple[int | None, int, float]:
    arms = len(step.arms)
    match step.study:
        case None:
            return 0, 0, 0.0
        case Replay() as study:
            played = step.arms if study.aa is None else (*step.arms, control_of(study.aa))
            # Placement of arms is unknown here and costs nothing.
            made = of_study(
                extended(study, swap=False),
                merged([part.traces[each.name] for each in part.matrix.workloads]),
                played,
                run="",
            )
            return _played(cost(made), starts_of(made) + arms - 1)
        case Sweep(contexts=contexts, pairs=pairs, output_tokens=output, seed=seed) as study:
            made = of_study(
                study, sweep(contexts, pairs=pairs, output=output, seed=seed), step.arms, run=""
            )
            return _played(cost(made), starts_of(made) + arms - 1)
        case Search(trial_s=trial_s):
            return None, 1, TRIALS * trial_s / 60
        case Ask() as study:
            at_once = 1 if part.is_launched else arms
            questions = (
                generated(asking_of(study))
                if study.own is None
                else supplied(Path(study.own), repetitions=study.repetitions)
            )
            asked = questions_cost(
                questions,
                arms=at_once,
                concurrency=study.concurrency,
                thinking_tokens=study.thinking_tokens,
            )
            rounds = arms // at_once
            # Without a local tokenizer the reference is first started to count tokens.
            return (
                asked.questions * rounds,
                arms + (study.tokenizer is None and study.own is None),
                asked.minutes * rounds,
            )
        case Decide():
            raise AssertionError("a matrix lays out its own steps")
        case Probe():
            return None, 2 * arms, 2 * arms * PROBE_MINUTES
        case _:
            assert_never(step.study)


def _played(found: Cost, starts: int) -> tuple[int, int, float]:
    return sum(found.calls_by_arm.values()), starts, found.minutes


def _usd(part: Part, step: Step, minutes: float) -> float | None:
    server = part.matrix.server
    if server.price_per_hour is None or not part.is_launched:
        return None
    configs = [config for config in part.matrix.configs if config.name in step.arms]
    counts = [gpus(settings_of(config, part.model, server)) for config in configs]
    # How they share the time is unknown here.
    paid = server.gpus or (fmean(counts) if counts else 1)
    return server.price_per_hour * paid * minutes / 60
