"""Speculative decoding accepts fewer drafts on this arm: each step then yields fewer tokens, whatever it costs.

FP8 KV lowered MTP acceptance from 0.725 to 0.630 in one published run (vLLM PR 55557, GB10): measure it per arm.
"""

from __future__ import annotations

from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.observations.telemetry.acceptance_rate"})

NOTABLE = 0.03  # absolute; a draft of five tokens then loses a twentieth of a step


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm and workload with a lower acceptance rate."""
    out = []
    for workload in case.evidence.workloads:
        reference = case.evidence.telemetry(workload.name, case.evidence.reference)
        for arm in case.evidence.challengers:
            mine = case.evidence.telemetry(workload.name, arm.name)
            if mine is None or reference is None or mine.acceptance_rate is None or reference.acceptance_rate is None:
                continue
            if reference.acceptance_rate - mine.acceptance_rate < NOTABLE:
                continue
            out.append(
                Finding(
                    kind="opposes",
                    arm=arm.name,
                    workload=workload.name,
                    message=(
                        f"Drafts are accepted at {mine.acceptance_rate:.1%} on {arm.name}, {reference.acceptance_rate:.1%} on "
                        f"{case.evidence.reference}."
                    ),
                    source="https://github.com/vllm-project/vllm/pull/55557",
                    leg="pays",
                )
            )
    return tuple(out)
