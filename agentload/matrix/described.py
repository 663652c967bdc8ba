"""A matrix as its file says it (models, configurations, workloads, what is measured, on which servers), and where it keeps what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from agentload.builtin import find
from agentload.matrix.measure import Measure
from agentload.model.trace import Session, Trace
from agentload.tracefile.files import read
from agentload.workloads import catalog

Settings: TypeAlias = Mapping[str, object]
"""Flags of `vllm serve` without their dashes, and their values."""
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One server configuration, an arm of every model that it fits."""

    name: str
    settings: Settings = field(default_factory=dict)
    only: tuple[str, ...] = ()
    """Models that it is for; () is all."""
    needs_windows: bool = False
    is_calibrated: bool = False
    """It is served from the model's calibrated checkpoint."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file, in which a misspelt key is refused."""


class Model(Entry, frozen=True):
    """One model, served by us or by servers that run already."""

    name: str = ""
    """Its key in the file."""
    serve: str | None = None
    """What `vllm serve` is given: a name, or a folder."""
    endpoints: str | None = None
    """In place of `serve`: a=URL,b=URL, an arms file, or emulated:PROFILE."""
    launch: bool = False
    """Start the servers of an arms file by its own commands."""
    settings: Settings = {}
    calibrated: str | None = None
    """Checkpoint with calibrated FP8 scales."""
    windows: bool | None = None
    """Whether it has sliding-window layers; None: its config.json tells."""
    configs: tuple[str, ...] | None = None
    """Those that it is tried with; None is all."""
    fields: Mapping[str, object] = {}
    """Further fields of an arms file, for all of its arms."""


class Workload(Entry, frozen=True):
    """One class of traffic: a generator with its options, or a trace."""

    name: str = ""
    """Its key in the file."""
    generate: str | None = None
    trace: str | None = None
    options: Mapping[str, object] = {}
    scale: Positive = 1.0
    seed: int = 7


class Server(Entry, frozen=True):
    """The machine that models are served on, one server at a time."""

    command: str | tuple[str, ...] = ("vllm",)
    """Words, once it is read."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    env: Mapping[str, str] = {}
    settings: Settings = {}
    start_minutes: NotNegative = 2.0
    """What a start takes, for estimates."""
    start_timeout_s: Positive = 1800.0
    gpu: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    price_per_hour: NotNegative | None = None
    """Of one GPU, in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All of it."""

    name: str
    models: tuple[Model, ...]
    configs: tuple[Config, ...]
    workloads: tuple[Workload, ...]
    measure: Measure
    server: Server
    policy: Mapping[str, object] = field(default_factory=dict)
    """What `agentload report --policy` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A configuration that a model is not tried with, and why."""

    model: str
    config: str
    why: str


@dataclass(frozen=True, slots=True)
class Places:
    """The folder of a matrix."""

    root: Path

    @property
    def policy(self) -> Path:
        """Return the policy that its reports are decided by."""
        return self.root / "policy.yaml"

    def trace(self, workload: str) -> Path:
        """Return the file of a workload's trace."""
        return self.root / "traces" / f"{workload}.jsonl"

    def state(self, model: str) -> Path:
        """Return the file that says what was done of a model: it lies with what was measured, and goes where that goes."""
        return self.root / model / "state.json"

    def database(self, model: str) -> Path:
        """Return a model's database: its only run is the model's, so that nothing has to be remembered to go on with it."""
        return self.root / model / "agentload.duckdb"

    def endpoints(self, model: str, arm: str | None = None) -> Path:
        """Return the arms file of a model, or of one of its arms alone."""
        return self.root / model / ("endpoints.yaml" if arm is None else f"arms/{arm}.yaml")

    def logs(self, model: str, step: str) -> Path:
        """Return the folder of a step's servers' logs."""
        return self.root / model / "logs" / step.replace("/", "-")

    def said(self, model: str, step: str) -> Path:
        """Return the file with what a step printed."""
        return self.root / model / "steps" / f"{step.replace('/', '-')}.txt"

    def report(self, model: str) -> Path:
        """Return the folder of a model's report."""
        return self.root / model / "report"


@dataclass(frozen=True, slots=True)
class _Labelled:
    sessions: Trace
    name: str

    def __iter__(self) -> Iterator[Session]:
        return (replace(session, workload=self.name) for session in self.sessions.sessions)


def trace_of(workload: Workload) -> Trace:
    """Return the trace of a workload; one that holds several classes keeps them. Raises AgentloadError where there is none."""
    if workload.generate is not None:
        made = catalog.trace(workload.generate, seed=workload.seed, options=workload.options, ctx_scale=workload.scale)
    else:
        made = read(find("traces", workload.trace or workload.name))
    classes = {session.workload for session in made.sessions}
    sessions = _Labelled(made, workload.name) if len(classes) == 1 else made.sessions
    return Trace(header=replace(made.header, name=workload.name), sessions=sessions)


def has_sessions(trace: Trace) -> bool:
    """Tell whether there is anything to play."""
    return any(True for _ in islice(trace.sessions, 1))
