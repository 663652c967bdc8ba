"""What is run for one model, in order: each step is a study, handed to a process of its own; the last one is the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from agentload.endpoints.read import EMULATED
from agentload.matrix.described import Matrix, Model
from agentload.matrix.measure import MIX
from agentload.matrix.places import Places
from agentload.study.change import essence, extended
from agentload.study.kinds import Ask, Probe, Replay, Search, Study, Sweep
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
        """Return what the step is called in the matrix."""
        return f"{self.model}/{self.name}"

    @property
    def asked(self) -> str:
        """Return what tells it from a step that measures something else, wherever the matrix lies."""
        return self.kind if self.study is None else essence(self.study)

    @property
    def pairs(self) -> int | None:
        """Return the pairs of a replay or a sweep of lengths, which can be resumed."""
        return self.study.pairs if isinstance(self.study, Replay | Sweep) else None

    @property
    def settled(self) -> str:
        """Return what of it may not change once it has measured something."""
        return f"thinking {self.study.thinking_tokens}" if isinstance(self.study, Ask) else ""

    def left(self, pairs: int | None) -> Study | None:
        """Return its study with so many pairs, those of a sweep that are left; None: with all."""
        return self.study if pairs is None or self.study is None else extended(self.study, pairs=pairs)


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
        """Return what names the endpoints of some of the arms, or of all."""
        if self.is_emulated:
            return f"{(self.model.endpoints or '').partition('/')[0]}/{'+'.join(arms or self.arms)}"
        return str(self.places.endpoints(self.model.name, arms[0] if arms else None).resolve())


def steps(planned: Planned) -> tuple[Step, ...]:
    """Return the steps of a model."""
    return tuple(_steps(planned))


def _steps(planned: Planned) -> Iterator[Step]:
    measure = planned.matrix.measure
    names = [each.name for each in planned.matrix.workloads]
    control = planned.arms[0] if measure.has_control else None
    # Which start a pair was played on is seen, not planned: more pairs may bring more starts.
    yield _step(planned, "replay", extended(measure.replay, traces=_traces(planned, names), aa=control))
    if measure.contexts is not None:
        yield _step(planned, "context", measure.contexts)
    if measure.concurrency is not None:
        for workload in measure.searched or names:
            study = extended(measure.concurrency, traces=_traces(planned, names if workload == MIX else [workload]))
            for arm in planned.arms:
                yield _step(planned, "concurrency", study, name=f"concurrency/{workload}/{arm}", arm=arm)
    if measure.accuracy is not None:
        # Found once a server has downloaded the model: the questions are as long with it as without.
        yield _step(planned, "accuracy", extended(measure.accuracy, tokenizer=planned.tokenizer))
    if measure.isolation is not None and planned.is_launched:
        yield _step(planned, "isolation", measure.isolation)
    yield Step(model=planned.model.name, name="report", kind="report", arms=planned.arms, study=None)


def _step(planned: Planned, kind: Kind, template: S, *, name: str | None = None, arm: str | None = None) -> Step:
    """Return a step of all arms, or of one, which asks the model's servers."""
    called, server = name or kind, planned.matrix.server
    whom = {
        "endpoints": planned.endpoints(*(() if arm is None else (arm,))),
        "logs": str(planned.places.logs(planned.model.name, called).resolve()),
        "launch": planned.is_launched and kind != "isolation",
        "start_timeout_s": server.start_timeout_s,
    }
    if not planned.is_launched:
        whom["restarts"] = None
    study = extended(template, **whom)
    return Step(model=planned.model.name, name=called, kind=kind, arms=planned.arms if arm is None else (arm,), study=study)


def _traces(planned: Planned, names: Sequence[str]) -> tuple[TraceRef, ...]:
    return tuple(TraceRef(path=str(Path(planned.places.trace(name)).resolve())) for name in names)
