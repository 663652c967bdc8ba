"""The form of a matrix file: which keys there are, and of which type."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


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
    scale: float = 1.0
    seed: int = 7


class Contexts(Strict):
    """`measure.contexts`."""

    lengths: str | int
    pairs: int = 3
    output: int = 128


class Concurrency(Strict):
    """`measure.concurrency`."""

    seconds: float = 60.0
    start: int = 4
    slo: str | None = None
    workloads: list[str] = []


class Accuracy(Strict):
    """`measure.accuracy`."""

    tasks: list[str] = []
    contexts: str | int = "4k..32k"
    items: int | None = None
    depths: int = 10
    concurrency: int = 8
    thinking: int = 0


class Measure(Strict):
    """`measure`."""

    pairs: int = 6
    restarts: int | None = 3
    sessions: int | None = 8
    waits: dict[Literal["user", "tool", "schedule"], float] = {}
    duration_s: float | None = None
    max_calls: int | None = None
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
    port: int = 8000
    env: dict[str, str] = {}
    settings: dict[str, Any] = {}
    start_minutes: float = 2.0
    start_timeout_s: float = 1800.0
    gpu: str | None = None
    gpus: int | None = None
    price_per_hour: float | None = None


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
