"""The form of a matrix file: which keys there are, and of which type."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

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
    measure: dict[str, Any] = {}
    server: Server = msgspec.field(default_factory=Server)
    policy: dict[str, Any] = {}
