"""What a report knows of a run beyond its evidence: how it was made, by whom it was served, and series that only charts need."""

from __future__ import annotations

from dataclasses import dataclass

from agentload.exposition.scrape import Scrape
from agentload.study.kinds import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one arm's server said it is."""

    arm: str
    url: str | None = None
    machine: str | None = None
    profile: str | None = None
    fingerprint: str | None = None
    """Short hash of the identity it reported."""
    steady: bool | None = None
    """The identity was the same before and after the run; None when it was read once or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How a run was made, for whoever wants to make it again."""

    run: str
    tool_version: str
    name: str = ""
    created: str | None = None
    """ISO date."""
    traces: tuple[str, ...] = ()
    trace_hash: str | None = None
    seed: int | None = None
    design: str | None = None
    command: str = ""
    options: str = ""
    """JSON of the load, limits and budgets."""
    database: str | None = None
    hosts: tuple[str, ...] = ()
    legs: int = 1
    minutes: float | None = None
    """How long the run took; of its virtual time when it was simulated."""
    servers: tuple[Served, ...] = ()
    origin: str | None = None
    """Where its trace came from, in words; None where the trace does not say."""
    compared_with: str | None = None
    """The earlier run, when the document compares two; its arms are then runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A server's own gauges over the run: one value a scrape, seconds from the run's start."""

    arm: str
    seconds: tuple[float, ...]
    kv_usage: tuple[float, ...]
    preemptions: tuple[float, ...]
    """Counted since the run's start; empty when the server does not say."""
    running: tuple[float, ...] = ()
    """Requests that the server worked on; empty when it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Graded answers of one task at one depth and length on one arm."""

    arm: str
    task: str
    context_tokens: float
    depth: float
    right: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Join what a report knows of a run beyond its evidence."""

    made: Made
    study: Study | None = None
    """What the run was, as data; None where no study was run, or none was kept."""
    timelines: tuple[Timeline, ...] = ()
    retrieval: tuple[Retrieval, ...] = ()
    production: Scrape | None = None
    """What a server in production tells of its load; None when no one was asked."""
