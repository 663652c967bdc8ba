"""The form of a matrix file: which keys there are, and of which type."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """A mapping in which a misspelt key is refused."""


class Model(Strict):
    """One entry of `models`."""

    serve: str | None = None
    endpoints: str | None = None
    launch: bool = False
    settings: dict[str, Any] = {}  # msgspec copies a default
    calibrated: str | None = None
    windows: bool | None = None
    configs: list[str] | None = None
    fields: dict[str, Any] = {}


class Workload(Strict):
    """One entry of `workloads`."""

    generate: str | None = None
    trace: str | None = None
    options: dict[str, Any] = {}
    scale: Positive = 1.0
    seed: int = 7


class Contexts(Strict):
    """`measure.contexts`."""

    lengths: str | int
    pairs: Count = 3
    output: Count = 128


class Concurrency(Strict):
    """`measure.concurrency`."""

    seconds: Positive = 60.0
    start: Count = 4
    slo: str | None = None
    workloads: list[str] = []


class Accuracy(Strict):
    """`measure.accuracy`."""

    tasks: list[str] = []
    contexts: str | int = "4k..32k"
    items: Count | None = None
    depths: Count = 10
    concurrency: Count = 8
    thinking: Annotated[int, msgspec.Meta(ge=0)] = 0


class Measure(Strict):
    """`measure`."""

    pairs: Count = 6
    restarts: Count | None = 3
    sessions: Count | None = 8
    waits: dict[Literal["user", "tool", "schedule"], NotNegative] = {}
    duration_s: Positive | None = None
    max_calls: Count | None = None
    aa: bool = False
    seed: int = 0
    noise: bool = True
    contexts: Contexts | str | int | None = None
    concurrency: Concurrency | None = None
    accuracy: Accuracy | None = None
    isolation: bool = False


class Server(Strict):
    """`server`."""

    command: str | list[str] = "vllm"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    env: dict[str, str] = {}
    settings: dict[str, Any] = {}
    start_minutes: NotNegative = 2.0
    start_timeout_s: Positive = 1800.0
    gpu: str | None = None
    gpus: Count | None = None
    price_per_hour: NotNegative | None = None


class File(Strict):
    """The whole file."""

    models: dict[str, str | Model]
    workloads: dict[str, str | Workload]
    name: str = "matrix"
    configs: list[str] | dict[str, dict[str, Any] | None] | None = None
    grid: dict[str, Any] = {}
    measure: Measure = msgspec.field(default_factory=Measure)
    server: Server = msgspec.field(default_factory=Server)
    policy: dict[str, Any] = {}
