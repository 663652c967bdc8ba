"""A matrix file as data (models, configurations, workloads,
measurements, servers), and the layout of its folder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from agentload.builtin import find
from agentload.matrix.measure import Measure
from agentload.model.trace import Session, Trace
from agentload.model.walk import again
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
    """Models it applies to; () is all."""
    needs_windows: bool = False
    is_calibrated: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file; unknown keys are refused."""


class Model(Entry, frozen=True):
    """One model, on servers that we start or that already run."""

    name: str = ""
    serve: str | None = None
    """The argument of `vllm serve`: a name or a folder."""
    endpoints: str | None = None
    """In place of `serve`: a=URL,b=URL, an arms file, or emulated:PROFILE."""
    launch: bool = False
    """Start the servers of an arms file by its own commands."""
    settings: Settings = {}
    calibrated: str | None = None
    windows: bool | None = None
    """Whether it has sliding-window layers; None: see its config.json."""
    configs: tuple[str, ...] | None = None
    """The configurations to try; None is all."""
    fields: Mapping[str, object] = {}
    """Further fields of an arms file, for all of its arms."""


class Workload(Entry, frozen=True):
    """One class of traffic: a generator with its options, or a trace."""

    name: str = ""
    generate: str | None = None
    trace: str | None = None
    options: Mapping[str, object] = {}
    scale: Positive = 1.0
    seed: int = 7
    only: tuple[str, ...] = ()
    """Models that play it; () is all."""


class Server(Entry, frozen=True):
    """The machine that models are served on, one server at a time."""

    command: str | tuple[str, ...] = ("vllm",)
    """Words, once it is read."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    env: Mapping[str, str] = {}
    settings: Settings = {}
    start_minutes: NotNegative = 2.0
    start_timeout_s: Positive = 1800.0
    gpu: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    price_per_hour: NotNegative | None = None
    """Price of one GPU-hour in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The whole matrix."""

    name: str
    models: tuple[Model, ...]
    configs: tuple[Config, ...]
    workloads: tuple[Workload, ...]
    measure: Measure
    server: Server
    policy: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A configuration that is not tried on a model, and why."""

    model: str
    config: str
    why: str


@dataclass(frozen=True, slots=True)
class Places:
    """The files in a matrix's folder."""

    root: Path

    @property
    def policy(self) -> Path:
        """Return the policy of its reports."""
        return self.root / "policy.yaml"

    def trace(self, workload: str) -> Path:
        """Return the file of a workload's trace."""
        return self.root / "traces" / f"{workload}.jsonl"

    def state(self, model: str) -> Path:
        """Return the file of a model's finished steps; it
        is kept with the measurements and moves with them.
        """
        return self.root / model / "state.json"

    def database(self, model: str) -> Path:
        """Return a model's database; it holds one run, so resuming needs nothing else."""
        return self.root / model / "agentload.duckdb"

    def endpoints(self, model: str, arm: str | None = None) -> Path:
        """Return the arms file of a model, or of one of its arms alone."""
        return self.root / model / ("endpoints.yaml" if arm is None else f"arms/{arm}.yaml")

    def logs(self, model: str, step: str) -> Path:
        """Return the folder of a step's server logs."""
        return self.root / model / "logs" / step.replace("/", "-")

    def output(self, model: str, step: str) -> Path:
        """Return the file of a step's output."""
        return self.root / model / "steps" / f"{step.replace('/', '-')}.txt"

    def report(self, model: str) -> Path:
        """Return the folder of a model's report."""
        return self.root / model / "report"


@again
def _labelled(trace: Trace, name: str) -> Iterator[Session]:
    return (replace(session, workload=name) for session in trace.sessions)


def trace_of(workload: Workload) -> Trace:
    """Return a workload's trace; one with several classes keeps them.

    Raises AgentloadError if there is none.
    """
    if workload.generate is not None:
        made = catalog.trace(
            workload.generate,
            seed=workload.seed,
            options=workload.options,
            ctx_scale=workload.scale,
        )
    else:
        made = read(find("traces", workload.trace or workload.name))
    classes = {session.workload for session in made.sessions}
    sessions = _labelled(made, workload.name) if len(classes) == 1 else made.sessions
    return Trace(header=replace(made.header, name=workload.name), sessions=sessions)


def has_sessions(trace: Trace) -> bool:
    """Return whether a trace has any session."""
    return any(True for _ in islice(trace.sessions, 1))
