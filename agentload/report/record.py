"""The record behind a page of several models: what each
configuration did with each workload, figure by figure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from advisor.assess.figures import output_rate, under_load
from advisor.estimate import Estimate
from advisor.evidence import Evidence, Kind
from advisor.verdict import ArmVerdict, Word
from agentload.dispatch.checking import RECORDED
from agentload.evidence.capacity import Held, held
from agentload.evidence.hardware import gpu_memory
from agentload.report.advise import document_of
from agentload.report.parts import Document, Listing, Table
from agentload.store.database import reading
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One model with its decision, and what else its database tells of its arms."""

    model: str
    document: Document
    evidence: Evidence
    held: tuple[Held, ...] = ()
    right: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By arm: how many of the questions that it answered it got right, and how many those were."""
    gpu_memory: Mapping[str, float] = field(default_factory=dict)
    """Bytes that the GPUs of an arm held at most."""
    report: str | None = None
    """Its report, as seen from the page."""

    def verdict(self, arm: str, workload: str | None) -> ArmVerdict | None:
        """Return the verdict on an arm for a class; with None, for the whole server."""
        verdicts = (
            self.document.decision.server if workload is None else self.document.decision.classes
        )
        return next(
            (each for each in verdicts if (each.arm, each.workload) == (arm, workload)), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What has no figures, and why: a server that does not
    start, a configuration that does not fit, a step that failed.
    """

    model: str
    what: str
    why: str
    code: int | None = None
    """Of what ended by itself."""
    is_failure: bool = True
    """False: it was left out on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration of one model: with one workload, or (None) as a server with all of them.

    Absent is None.
    """

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
    lists: tuple[Listing, ...]
    no_difference: tuple[str, ...]
    models: tuple[ModelLine, ...]
    tables: tuple[Table, ...]
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


def rows(of: Measured) -> Iterator[Row]:
    """Yield the rows of a model: workload by workload,
    then its servers with all of them; the reference first.
    """
    evidence = of.evidence
    names = [
        each.name
        for each in sorted(evidence.workloads, key=lambda each: -(each.gpu_time_share or 0.0))
    ]
    # Several classes may have been searched together that are not all of them.
    together = sorted({each.workload for each in of.held if each.workload is not None} - set(names))
    for workload in (*names, *together, None):
        for arm in (evidence.reference, *(each.name for each in evidence.challengers)):
            yield _row(of, arm, workload)


def _row(of: Measured, arm: str, workload: str | None) -> Row:
    decision, verdict = of.document.decision, of.verdict(arm, workload)
    safe = next((each.safe for each in decision.server if each.arm == arm), None)
    right, asked = of.right.get(arm, (None, None))
    found = next((each for each in of.held if (each.arm, each.workload) == (arm, workload)), None)
    acceptance = _figure(of, "acceptance_rate", arm, None)
    return Row(
        model=of.model,
        config=arm,
        workload=workload,
        kind=decision.kind,
        ttft_p50_ms=_figure(of, "ttft_ms.p50", arm, workload),
        ttft_p95_ms=_figure(of, "ttft_ms.p95", arm, workload),
        itl_p50_ms=_figure(of, "tpot_ms.p50", arm, workload),
        output_tokens_per_s=_figure(of, "output_tokens_per_s", arm, None)
        if workload is None
        else _rate(of, arm, workload),
        requests_per_s=_figure(of, "requests_per_s", arm, workload),
        pool_tokens=of.evidence.arm(arm).pool_tokens,
        gpu_memory_bytes=of.gpu_memory.get(arm),
        sessions_held=None if found is None else found.holds,
        sessions_broke=None if found is None else found.breaks,
        answers_right=right,
        answers_asked=asked,
        accuracy_change=None if safe is None or right is None else safe.estimate,
        draft_acceptance=None if acceptance is None else acceptance.value,
        usd_per_turn=_figure(of, "usd_per_turn", arm, workload),
        verdict=None if verdict is None else verdict.verdict,
        reason=None if verdict is None else verdict.reason,
    )


def _figure(of: Measured, name: str, arm: str, workload: str | None) -> Estimate | None:
    return next(
        (
            each.estimate
            for each in of.document.decision.figures
            if (each.name, each.arm, each.workload) == (name, arm, workload)
        ),
        None,
    )


def _rate(of: Measured, arm: str, workload: str) -> Estimate | None:
    """Return a class's own tokens per second, beside the other classes of the mix."""
    calls = of.evidence.calls(workload, arm)
    return None if calls is None or not under_load([calls]) else output_rate([calls])


_RIGHT = """SELECT arm, count_if("right"), count("right") FROM graded WHERE run_id = ? AND task <> ? GROUP BY arm ORDER BY arm"""


def measured(
    database: Path, run: str, *, model: str, setting: Setting, report: str | None
) -> Measured:
    """Decide on a model's run. Raises EvidenceError where there is nothing to decide on."""
    found = verdict(database, run, setting=setting)
    workloads = [each.name for each in found.evidence.workloads]
    with reading(database) as connection:
        steps, memory = held(connection, run, workloads), gpu_memory(connection, run)
        answers = connection.execute(_RIGHT, [run, RECORDED]).fetchall()
    return Measured(
        model=model,
        document=document_of(found, database),
        evidence=found.evidence,
        held=steps,
        right={arm: (right, asked) for arm, right, asked in answers if asked},
        gpu_memory=memory,
        report=report,
    )
