"""Define a matrix file as data, and the layout of its folder.

The data are models, configurations, workloads, measurements and servers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import field

from agentload.builtin import find
from agentload.matrix.measure import Measure
from agentload.model.record import Record
from agentload.model.trace import Session, Trace
from agentload.model.walk import again
from agentload.tracefile.files import read
from agentload.verdict.policy import Setting, parse
from agentload.workloads import catalog

Settings: TypeAlias = Mapping[str, object]
"""Flags of `vllm serve` without their dashes, and their values."""
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Config(Record):
    """Describe one server configuration, an arm of every model that it fits."""

    name: str
    settings: Settings = field(default_factory=dict)
    only: tuple[str, ...] = ()
    """Models it applies to; () is all."""
    needs_windows: bool = False
    is_calibrated: bool = False


class MatrixEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold a mapping of the file; unknown keys are refused."""


class MatrixModel(MatrixEntry, frozen=True):
    """Describe one model, on servers that we start or that already run."""

    name: str = ""
    serve: str | None = None
    """Argument of `vllm serve`: a name or a folder."""
    endpoints: str | None = None
    """Servers in place of `serve`: a=URL,b=URL, an arms file, or emulated:PROFILE."""
    launch: bool = False
    """Whether to start the servers of an arms file by its own commands."""
    settings: Settings = {}
    calibrated: str | None = None
    windows: bool | None = None
    """Whether it has sliding-window layers; None: see its config.json."""
    configs: tuple[str, ...] | None = None
    """Configurations to try; None is all."""
    fields: Mapping[str, object] = {}
    """Further fields of an arms file, for all of its arms."""


class MatrixWorkload(MatrixEntry, frozen=True):
    """Describe one class of traffic: a generator with its options, or a trace."""

    name: str = ""
    generate: str | None = None
    trace: str | None = None
    options: Mapping[str, object] = {}
    scale: Positive = 1.0
    seed: int = 7
    only: tuple[str, ...] = ()
    """Models that play it; () is all."""


class MatrixServer(MatrixEntry, frozen=True):
    """Describe the machine that models are served on, one server at a time."""

    command: str | tuple[str, ...] = ("vllm",)
    """Command that starts a server; split into words once the file is read."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    env: Mapping[str, str] = {}
    settings: Settings = {}
    start_minutes: NotNegative = 2.0
    start_timeout_s: Positive = 1800.0
    gpu: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    price_per_hour: NotNegative | None = None
    """Price of one GPU-hour in US dollars."""


class Matrix(Record):
    """Hold the whole matrix."""

    name: str
    models: tuple[MatrixModel, ...]
    configs: tuple[Config, ...]
    workloads: tuple[MatrixWorkload, ...]
    measure: Measure
    server: MatrixServer
    policy: Mapping[str, object] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """Policy of the matrix, as reports take it."""
        if self.policy:
            return parse(self.policy, at="policy")
        return Setting()


class LeftOut(Record):
    """Name a configuration that is not tried on a model, and why."""

    model: str
    config: str
    why: str


class MatrixFolder(Record, kw_only=False):
    """Name the files in a matrix's folder."""

    root: Path

    @property
    def policy(self) -> Path:
        """File of the policy of its reports."""
        return self.root / "policy.yaml"

    def trace(self, workload: str) -> Path:
        """Return the file of a workload's trace."""
        return self.root / "traces" / f"{workload}.jsonl"

    def database(self, model: str) -> Path:
        """Return a model's database; it holds one run, so resuming needs nothing else."""
        return self.root / model / "agentload.duckdb"

    def endpoints(self, model: str) -> Path:
        """Return the arms file of a model."""
        return self.root / model / "endpoints.yaml"

    def logs(self, model: str, step: str) -> Path:
        """Return the folder of a step's server logs."""
        return self.root / model / "logs" / step.replace("/", "-")

    def fault(self, model: str, arm: str) -> Path:
        """Return the file that says why an arm's server did not start; logs are next to it."""
        return self.logs(model, "faults") / f"{arm}.json"

    def output(self, model: str, step: str) -> Path:
        """Return the file of a step's output."""
        return self.root / model / "steps" / f"{step.replace('/', '-')}.txt"

    def report(self, model: str) -> Path:
        """Return the folder of a model's report."""
        return self.root / model / "report"


@again
def _labelled(trace: Trace, name: str) -> Iterator[Session]:
    return (replace(session, workload=name) for session in trace.sessions)


def trace_of(workload: MatrixWorkload) -> Trace:
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
