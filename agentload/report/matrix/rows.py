"""The record: what each configuration did with each workload, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.assess.figures import output_rate, under_load
from advisor.estimate import Estimate
from agentload.report.matrix.parts import Measured, Row


def rows(of: Measured) -> Iterator[Row]:
    """Yield the rows of a model: workload by workload, then its servers with all of them; the reference first."""
    evidence = of.evidence
    names = [each.name for each in sorted(evidence.workloads, key=lambda each: -(each.gpu_time_share or 0.0))]
    # Several classes may have been searched together that are not all of them.
    together = sorted({each.workload for each in of.held if each.workload is not None} - set(names))
    for workload in (*names, *together, None):
        for arm in (evidence.reference, *(each.name for each in evidence.challengers)):
            yield _row(of, arm, workload)


def _row(of: Measured, arm: str, workload: str | None) -> Row:
    decision = of.document.decision
    verdicts = decision.server if workload is None else decision.classes
    verdict = next((each for each in verdicts if (each.arm, each.workload) == (arm, workload)), None)
    safe = next((each.safe for each in decision.server if each.arm == arm), None)
    right = next((each for each in of.right if each.arm == arm), None)
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
        output_tokens_per_s=_figure(of, "output_tokens_per_s", arm, None) if workload is None else _rate(of, arm, workload),
        requests_per_s=_figure(of, "requests_per_s", arm, workload),
        pool_tokens=of.evidence.arm(arm).pool_tokens,
        gpu_memory_bytes=dict(of.gpu_memory).get(arm),
        sessions_held=None if found is None else found.holds,
        sessions_broke=None if found is None else found.breaks,
        answers_right=None if right is None else right.right,
        answers_asked=None if right is None else right.asked,
        accuracy_change=None if safe is None or right is None else safe.estimate,
        draft_acceptance=None if acceptance is None else acceptance.value,
        usd_per_turn=_figure(of, "usd_per_turn", arm, workload),
        verdict=None if verdict is None else verdict.verdict,
        reason=None if verdict is None else verdict.reason,
    )


def _figure(of: Measured, name: str, arm: str, workload: str | None) -> Estimate | None:
    return next(
        (each.estimate for each in of.document.decision.figures if (each.name, each.arm, each.workload) == (name, arm, workload)), None
    )


def _rate(of: Measured, arm: str, workload: str) -> Estimate | None:
    """Return a class's own tokens per second, beside the other classes of the mix."""
    calls = of.evidence.calls(workload, arm)
    return None if calls is None or not under_load([calls]) else output_rate([calls])
