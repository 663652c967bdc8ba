"""Collect the record behind a page of several models, figure by figure.

It says what each configuration did with each workload.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import field

from advisor.assess.figures import is_under_load, output_rate
from advisor.estimate import Estimate
from advisor.evidence import Evidence, Kind
from advisor.verdict import ArmVerdict, Word
from agentload.dispatch.checking import RECORDED
from agentload.evidence.capacity import Concurrency, concurrency
from agentload.evidence.hardware import gpu_memory
from agentload.model.record import Record
from agentload.report.advise import document_of
from agentload.report.lookup import first
from agentload.report.parts import Document
from agentload.store.database import reading
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict


class Measured(Record):
    """One model with its decision, and what else its database holds of its arms."""

    model: str
    document: Document
    evidence: Evidence
    held: tuple[Concurrency, ...] = ()
    right: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By arm: how many of the questions that it answered it got right, and how many those were."""
    gpu_memory: Mapping[str, float] = field(default_factory=dict)
    """Bytes that the GPUs of an arm held at most."""
    report: str | None = None
    """Its report, as seen from the page."""

    def verdict(self, arm: str, workload: str | None) -> ArmVerdict | None:
        """Return the verdict on an arm for a class; with None, for the whole server."""
        decision = self.document.decision
        verdicts = decision.server if workload is None else decision.classes
        return first(verdicts, arm=arm, workload=workload)

    def figure(self, name: str, arm: str, workload: str | None) -> Estimate | None:
        """Return a figure of an arm for a class; with None, for the whole server."""
        found = first(self.document.decision.figures, name=name, arm=arm, workload=workload)
        return None if found is None else found.estimate

    def output_rate(self, arm: str, workload: str | None) -> Estimate | None:
        """Return the output tokens per second of a class, or (None) of the whole server.

        A class is measured next to the other classes of the mix.
        """
        if workload is None:
            return self.figure("output_tokens_per_s", arm, None)
        calls = self.evidence.calls(workload, arm)
        if calls is None or not is_under_load([calls]):
            return None
        return output_rate([calls])


class Missing(Record):
    """What has no figures, and why.

    It may be a server that does not start, a configuration that does not fit, a step that failed.
    """

    model: str
    what: str
    why: str
    code: int | None = None
    """Of what ended by itself."""
    is_failure: bool = True
    """False: it was left out on purpose."""


class ConfigRow(Record):
    """State what one configuration of a model did with one workload, or (None) with all of them.

    A figure that was not measured is None.
    """

    model: str
    config: str
    workload: str | None
    kind: Kind
    ttft_p50_ms: Estimate | None
    ttft_p95_ms: Estimate | None
    itl_p50_ms: Estimate | None
    """Median over turns of a turn's mean time between tokens."""
    output_tokens_per_s: Estimate | None
    requests_per_s: Estimate | None
    pool_tokens: float | None
    gpu_memory_bytes: float | None
    sessions_held: int | None
    """At once without trouble."""
    sessions_broke: int | None
    answers_right: int | None
    answers_asked: int | None
    accuracy_change: Estimate | None
    """Against the reference, on the same questions."""
    draft_acceptance: float | None
    usd_per_turn: Estimate | None
    verdict: Word | None
    """None: it is the reference."""
    reason: str | None


def rows(of: Measured) -> Iterator[ConfigRow]:
    """Yield the rows of a model: workload by workload, then its whole servers.

    Of each workload the reference comes first.
    """
    evidence = of.evidence
    workloads = sorted(evidence.workloads, key=lambda each: -(each.gpu_time_share or 0.0))
    names = [each.name for each in workloads]
    arms = [evidence.reference, *(each.name for each in evidence.challengers)]
    # A search may have played several classes together without playing all.
    held = {each.workload for each in of.held if each.workload is not None}
    for workload in (*names, *sorted(held.difference(names)), None):
        for arm in arms:
            yield _row(of, arm, workload)


def _row(of: Measured, arm: str, workload: str | None) -> ConfigRow:
    decision = of.document.decision
    verdict = of.verdict(arm, workload)
    of_server = of.verdict(arm, None)
    right, asked = of.right.get(arm, (None, None))
    found = first(of.held, arm=arm, workload=workload)
    acceptance = of.figure("acceptance_rate", arm, None)
    return ConfigRow(
        model=of.model,
        config=arm,
        workload=workload,
        kind=decision.kind,
        ttft_p50_ms=of.figure("ttft_ms.p50", arm, workload),
        ttft_p95_ms=of.figure("ttft_ms.p95", arm, workload),
        itl_p50_ms=of.figure("tpot_ms.p50", arm, workload),
        output_tokens_per_s=of.output_rate(arm, workload),
        requests_per_s=of.figure("requests_per_s", arm, workload),
        pool_tokens=of.evidence.arm(arm).pool_tokens,
        gpu_memory_bytes=of.gpu_memory.get(arm),
        sessions_held=None if found is None else found.holds,
        sessions_broke=None if found is None else found.breaks,
        answers_right=right,
        answers_asked=asked,
        accuracy_change=None if of_server is None or right is None else of_server.safe.estimate,
        draft_acceptance=None if acceptance is None else acceptance.value,
        usd_per_turn=of.figure("usd_per_turn", arm, workload),
        verdict=None if verdict is None else verdict.verdict,
        reason=None if verdict is None else verdict.reason,
    )


_RIGHT = """
SELECT arm, count_if("right"), count("right") FROM graded
WHERE run_id = ? AND task <> ? GROUP BY arm ORDER BY arm
"""


def record_of(
    database: Path, run: str, *, model: str, setting: Setting, report: str | None
) -> Measured:
    """Decide on a model's run. Raises EvidenceError where there is nothing to decide on."""
    found = verdict(database, run, setting=setting)
    workloads = [each.name for each in found.evidence.workloads]
    with reading(database) as connection:
        memory = gpu_memory(connection, found.view)
        answers = connection.execute(_RIGHT, [run, RECORDED]).fetchall()
    return Measured(
        model=model,
        document=document_of(found, database),
        evidence=found.evidence,
        held=concurrency(found.view, workloads),
        right={arm: (right, asked) for arm, right, asked in answers if asked},
        gpu_memory=memory,
        report=report,
    )
