"""What is run for one model, in order: each step is one verb, as it would be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentload.endpoints.read import EMULATED
from agentload.matrix.described import Matrix, Model
from agentload.matrix.places import Places

Kind: TypeAlias = Literal["replay", "context", "concurrency", "accuracy", "isolation", "report"]
MIX = "mix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One verb for one model."""

    model: str
    name: str
    kind: Kind
    arms: tuple[str, ...]
    asks: tuple[str, ...]
    """The verb and what it measures."""
    where: tuple[str, ...] = ()
    """Files, patience and helpers: with others it is the same step still."""
    pairs: int | None = None
    """Of a replay or a sweep of lengths, which may be gone on with."""
    settled: str = ""
    """What of it may not change once it has measured something."""

    @property
    def key(self) -> str:
        """Return what the step is called in the matrix."""
        return f"{self.model}/{self.name}"

    @property
    def asked(self) -> str:
        """Return what tells it from a step that measures something else, wherever the matrix lies."""
        return shlex.join(self.asks)

    def typed(self, run: str | None, *, pairs: int | None = None) -> tuple[str, ...]:
        """Return its arguments for the model's run; *run* is None before there is one. *pairs*: those of a sweep that are left."""
        joined = {"replay": "--resume", "report": "--run"}.get(self.kind, "--into")
        wanted = pairs or self.pairs
        return (*self.asks, *self.where, *(() if wanted is None else ("--pairs", str(wanted))), *(() if run is None else (joined, run)))


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

    @property
    def is_emulated(self) -> bool:
        """Tell whether a profile stands in for its servers."""
        return (self.model.endpoints or "").startswith(EMULATED)

    def endpoints(self, *arms: str) -> str:
        """Return what `--endpoints` is given for some of the arms, or for all."""
        if self.is_emulated:
            return f"{(self.model.endpoints or '').partition('/')[0]}/{'+'.join(arms or self.arms)}"
        return str(self.places.endpoints(self.model.name, arms[0] if arms else None))


def steps(planned: Planned) -> tuple[Step, ...]:
    """Return the steps of a model."""
    return tuple(_steps(planned))


def _steps(planned: Planned) -> Iterator[Step]:
    measure = planned.matrix.measure
    names = [each.name for each in planned.matrix.workloads]
    yield _replay(planned, names)
    if measure.contexts is not None:
        yield _context(planned)
    if measure.concurrency is not None:
        for workload in measure.concurrency.workloads or names:
            for arm in planned.arms:
                yield _concurrency(planned, workload, names if workload == MIX else [workload], arm)
    if measure.accuracy is not None:
        yield _accuracy(planned)
    if measure.isolation and planned.is_launched:
        logs = ("--logs", str(planned.places.logs(planned.model.name, "isolation")))
        yield _step(planned, "isolation", asks=("probe", "--matrix"), where=(*_common(planned), *logs))
    yield _report(planned)


def _step(planned: Planned, kind: Kind, *, asks: Sequence[str], where: Sequence[str], pairs: int | None = None, settled: str = "") -> Step:
    """Return a step of all arms, which is called what it is."""
    return Step(
        model=planned.model.name,
        name=kind,
        kind=kind,
        arms=planned.arms,
        asks=tuple(asks),
        where=tuple(where),
        pairs=pairs,
        settled=settled,
    )


def _replay(planned: Planned, names: Sequence[str]) -> Step:
    measure = planned.matrix.measure
    played = {"--sessions": measure.sessions, "--duration": measure.duration_s, "--max-calls": measure.max_calls}
    control = ("--aa", planned.arms[0]) if measure.aa else ()
    traces = tuple(str(planned.places.trace(name)) for name in names)
    # Which start a pair was played on is seen, not planned: more pairs may bring more starts.
    restarts = ("--restarts", str(measure.restarts)) if planned.is_launched and measure.restarts is not None else ()
    asks = ("replay", *_options(played), *_waits(planned), *control, *_seeded(planned))
    return _step(
        planned, "replay", asks=asks, where=(*traces, *_common(planned), *_launch(planned, "replay"), *restarts), pairs=measure.pairs
    )


def _context(planned: Planned) -> Step:
    wanted = planned.matrix.measure.contexts
    assert wanted is not None, "asked for"
    asks = ("sweep", "--contexts", wanted.lengths, "--output", str(wanted.output), *_seeded(planned))
    return _step(planned, "context", asks=asks, where=(*_common(planned), *_launch(planned, "context")), pairs=wanted.pairs)


def _concurrency(planned: Planned, workload: str, traces: Sequence[str], arm: str) -> Step:
    wanted = planned.matrix.measure.concurrency
    assert wanted is not None, "asked for"
    name = f"concurrency/{workload}/{arm}"
    tried = {"--start": wanted.start, "--seconds": wanted.seconds, "--slo": wanted.slo}
    paths = ",".join(str(planned.places.trace(each)) for each in traces)
    return Step(
        model=planned.model.name,
        name=name,
        kind="concurrency",
        arms=(arm,),
        asks=("sweep", "--concurrency", *_options(tried), *_waits(planned), *_seeded(planned)),
        where=("--trace", paths, *_common(planned, arm), *_launch(planned, name)),
    )


def _accuracy(planned: Planned) -> Step:
    wanted = planned.matrix.measure.accuracy
    assert wanted is not None, "asked for"
    asked = {
        "--tasks": ",".join(wanted.tasks) or None,
        "--contexts": wanted.contexts,
        "--items": wanted.items,
        "--depths": wanted.depths,
        "--thinking": wanted.thinking or None,
        "--seed": planned.matrix.measure.seed,
    }
    # Found once a server has downloaded the model: the questions are as long with it as without.
    how = {"--concurrency": wanted.concurrency, "--tokenizer": planned.tokenizer}
    return _step(
        planned,
        "accuracy",
        asks=("eval", *_options(asked)),
        where=(*_common(planned), *_options(how), *_launch(planned, "accuracy")),
        settled=f"thinking {wanted.thinking}",
    )


def _report(planned: Planned) -> Step:
    places, model = planned.places, planned.model.name
    policy = ("--policy", str(places.policy)) if planned.matrix.policy else ()
    return _step(planned, "report", asks=("report",), where=(str(places.database(model)), "-o", str(places.report(model)), *policy))


def _common(planned: Planned, *arms: str) -> tuple[str, ...]:
    return ("--endpoints", planned.endpoints(*arms), "--db", str(planned.places.database(planned.model.name)))


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
