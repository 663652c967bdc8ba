"""The page of a matrix as data: figures for machines, and the words and tables that people read."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.estimate import Estimate
from advisor.evidence import Evidence, Kind
from advisor.verdict import Word
from agentload.evidence.capacity import Held
from agentload.report.parts import Document, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """How many of the questions that an arm answered it got right."""

    arm: str
    right: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One model with its decision, and what else its database tells of its arms."""

    model: str
    document: Document
    evidence: Evidence
    held: tuple[Held, ...] = ()
    right: tuple[Right, ...] = ()
    gpu_memory: tuple[tuple[str, float], ...] = ()
    """Bytes that the GPUs of an arm held at most."""
    report: str | None = None
    """Its report, as seen from the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What has no figures, and why: a server that does not start, a configuration that does not fit, a step that failed."""

    model: str
    what: str
    why: str
    code: int | None = None
    """Of what ended by itself."""
    is_failure: bool = True
    """False: it was left out on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration of one model: with one workload, or (None) as a server with all of them. Absent is None."""

    model: str
    config: str
    workload: str | None
    kind: Kind
    ttft_p50_ms: Estimate | None = None
    ttft_p95_ms: Estimate | None = None
    itl_p50_ms: Estimate | None = None
    """Median over turns of a turn's mean time between tokens."""
    output_tokens_per_s: Estimate | None = None
    requests_per_s: Estimate | None = None
    pool_tokens: float | None = None
    gpu_memory_bytes: float | None = None
    sessions_held: int | None = None
    """At once without trouble."""
    sessions_broke: int | None = None
    answers_right: int | None = None
    answers_asked: int | None = None
    accuracy_change: Estimate | None = None
    """Against the reference, on the same questions."""
    draft_acceptance: float | None = None
    usd_per_turn: Estimate | None = None
    verdict: Word | None = None
    """None: it is the reference."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One of the four lists over all models."""

    heading: str
    word: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """What was decided for one model, in a line."""

    model: str
    kind: Kind
    headline: str
    where: str
    report: str | None
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything that the page says."""

    title: str
    banners: tuple[str, ...]
    lists: tuple[Listed, ...]
    no_difference: tuple[str, ...]
    models: tuple[ModelLine, ...]
    tables: tuple[Table, ...]
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
