"""What is run for one model, in order: each step is one verb, as it would be typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentload.endpoints.read import EMULATED
from agentload.experiment.matrix.parts import Matrix, Model
from agentload.experiment.matrix.places import Places

Kind: TypeAlias = Literal["replay", "context", "concurrency", "accuracy", "isolation", "report"]
MIX = "mix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One verb for one model."""

    model: str
    name: str
    kind: Kind
    arms: tuple[str, ...]
    arguments: tuple[str, ...]
    """Without what says to which run it belongs."""
    workload: str | None = None
    pairs: int | None = None
    """Of a sweep of lengths, which may be gone on with."""

    @property
    def key(self) -> str:
        """Return what the step is called in the matrix."""
        return f"{self.model}/{self.name}"

    def typed(self, run: str | None, *, pairs: int | None = None) -> tuple[str, ...]:
        """Return its arguments for the model's run; *run* is None before there is one. *pairs*: those of a sweep that are left."""
        wanted = pairs or self.pairs
        joined = {"replay": "--resume", "report": "--run"}.get(self.kind, "--into")
        return (*self.arguments, *(() if wanted is None else ("--pairs", str(wanted))), *(() if run is None else (joined, run)))


@dataclass(frozen=True, slots=True)
class Planned:
    """One model with the arms that it is tried with, the reference first."""

    matrix: Matrix
    model: Model
    arms: tuple[str, ...]
    places: Places
    tokenizer: str | None = None
    """The model's tokenizer.json, where it is on this machine: a server need not be started to count."""

    @property
    def is_launched(self) -> bool:
        """Tell whether its servers are started for it, one at a time."""
        return self.model.serve is not None or self.model.launch

    def endpoints(self, *arms: str) -> str:
        """Return what `--endpoints` is given for some of the arms, or for all."""
        given = self.model.endpoints
        if given is None or given.endswith((".yaml", ".yml")):
            return str(self.places.endpoints(self.model.name, arms[0] if arms else None))
        if given.startswith(EMULATED):
            return f"{given.partition('/')[0]}/{'+'.join(arms or self.arms)}"
        parts = {part.strip().partition("=")[0]: part.strip() for part in given.split(",")}
        return ",".join(parts[arm] for arm in arms or self.arms)


def steps(planned: Planned) -> tuple[Step, ...]:
    """Return the steps of a model."""
    return tuple(_steps(planned))


def _steps(planned: Planned) -> Iterator[Step]:
    model, arms, measure = planned.model.name, planned.arms, planned.matrix.measure
    names = [each.name for each in planned.matrix.workloads]
    yield Step(model=model, name="replay", kind="replay", arms=arms, arguments=_replay(planned, names))
    if measure.contexts is not None:
        yield Step(model=model, name="context", kind="context", arms=arms, arguments=_context(planned), pairs=measure.contexts.pairs)
    if measure.concurrency is not None:
        for workload in measure.concurrency.workloads or names:
            for arm in arms:
                name = f"concurrency/{workload}/{arm}"
                arguments = _concurrency(planned, name, names if workload == MIX else [workload], arm)
                yield Step(model=model, name=name, kind="concurrency", arms=(arm,), arguments=arguments, workload=workload)
    if measure.accuracy is not None:
        yield Step(model=model, name="accuracy", kind="accuracy", arms=arms, arguments=_accuracy(planned))
    if measure.isolation and planned.is_launched:
        logs = ("--logs", str(planned.places.logs(model, "isolation")))
        arguments = ("probe", "--matrix", *_common(planned, planned.endpoints()), *logs)
        yield Step(model=model, name="isolation", kind="isolation", arms=arms, arguments=arguments)
    policy = ("--policy", str(planned.places.policy)) if planned.matrix.policy else ()
    arguments = ("report", str(planned.places.database(model)), "-o", str(planned.places.report(model)), *policy)
    yield Step(model=model, name="report", kind="report", arms=arms, arguments=arguments)


def _replay(planned: Planned, names: Sequence[str]) -> tuple[str, ...]:
    measure = planned.matrix.measure
    played = {"--pairs": measure.pairs, "--sessions": measure.sessions, "--duration": measure.duration_s, "--max-calls": measure.max_calls}
    traces = [str(planned.places.trace(name)) for name in names]
    control = ("--aa", planned.arms[0]) if measure.aa else ()
    restarts = ("--restarts", str(measure.restarts)) if planned.is_launched and measure.restarts is not None else ()
    return (
        *("replay", *traces, *_common(planned, planned.endpoints()), *_options(played), *_waits(planned), *control),
        *_launch(planned, "replay"),
        *(*restarts, *_seeded(planned)),
    )


def _context(planned: Planned) -> tuple[str, ...]:
    wanted = planned.matrix.measure.contexts
    assert wanted is not None, "asked for"
    sweep = ("sweep", "--context", wanted.lengths, "--output", str(wanted.output))
    return (*sweep, *_common(planned, planned.endpoints()), *_launch(planned, "context"), *_seeded(planned))


def _concurrency(planned: Planned, name: str, traces: Sequence[str], arm: str) -> tuple[str, ...]:
    wanted = planned.matrix.measure.concurrency
    assert wanted is not None, "asked for"
    paths = ",".join(str(planned.places.trace(each)) for each in traces)
    tried = {"--trace": paths, "--start": wanted.start, "--seconds": wanted.seconds, "--slo": wanted.slo}
    search = ("sweep", "--concurrency", *_options(tried), *_waits(planned), *_common(planned, planned.endpoints(arm)))
    return (*search, *_launch(planned, name), *_seeded(planned))


def _accuracy(planned: Planned) -> tuple[str, ...]:
    wanted = planned.matrix.measure.accuracy
    assert wanted is not None, "asked for"
    asked = {
        "--tasks": ",".join(wanted.tasks) or None,
        "--contexts": wanted.contexts,
        "--items": wanted.items,
        "--depths": wanted.depths,
        "--concurrency": wanted.concurrency,
        "--thinking": wanted.thinking or None,
        "--tokenizer": planned.tokenizer,
    }
    seed = ("--seed", str(planned.matrix.measure.seed))
    return ("eval", *_common(planned, planned.endpoints()), *_options(asked), *_launch(planned, "accuracy"), *seed)


def _common(planned: Planned, endpoints: str) -> tuple[str, ...]:
    return ("--endpoints", endpoints, "--db", str(planned.places.database(planned.model.name)))


def _launch(planned: Planned, step: str) -> tuple[str, ...]:
    if not planned.is_launched:
        return ()
    timeout = f"{planned.matrix.server.start_timeout_s:g}"
    return ("--launch", "--logs", str(planned.places.logs(planned.model.name, step)), "--start-timeout", timeout)


def _waits(planned: Planned) -> tuple[str, ...]:
    return tuple(word for kind, seconds in planned.matrix.measure.waits.items() for word in ("--wait-cap", f"{kind}={seconds:g}"))


def _seeded(planned: Planned) -> tuple[str, ...]:
    measure = planned.matrix.measure
    return ("--seed", str(measure.seed), *(() if measure.noise else ("--no-noise",)))


def _options(values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(word for name, value in values.items() if value is not None for word in (name, str(value)))
