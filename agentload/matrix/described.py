"""A matrix as its file says it: models, configurations, workloads, what is measured, on which servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agentload.matrix.measure import Measure

Settings: TypeAlias = Mapping[str, object]
"""Flags of `vllm serve` without their dashes, and their values."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model, served by us or by servers that run already."""

    name: str
    serve: str | None = None
    """What `vllm serve` is given: a name, or a folder."""
    endpoints: str | None = None
    """In place of `serve`: a=URL,b=URL, an arms file, or emulated:PROFILE."""
    launch: bool = False
    """Start the servers of an arms file by its own commands."""
    settings: Settings = field(default_factory=dict)
    calibrated: str | None = None
    """Checkpoint with calibrated FP8 scales."""
    windows: bool | None = None
    """Whether it has sliding-window layers; None: its config.json tells."""
    configs: tuple[str, ...] = ()
    """Those that it is tried with; () is all."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Further fields of an arms file, for all of its arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One class of traffic: a generator with its options, or a trace."""

    name: str
    generate: str | None = None
    trace: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    scale: float = 1.0
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The machine that models are served on, one server at a time."""

    command: tuple[str, ...] = ("vllm",)
    port: int = 8000
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    start_minutes: float = 2.0
    """What a start takes, for estimates."""
    start_timeout_s: float = 1800.0
    gpu: str | None = None
    gpus: int | None = None
    price_per_hour: float | None = None
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
