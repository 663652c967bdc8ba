"""Speculative decoding accepts fewer drafts on this arm:
each step then yields fewer tokens, whatever it costs.

FP8 KV lowered MTP acceptance from 0.725 to 0.630 in one
published run (vLLM PR 55557, GB10): measure it per arm.
"""

from advisor.case import Case
from advisor.evidence import Arm, WorkloadClass
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.observations.telemetry.acceptance_rate"})

NOTABLE = 0.03  # absolute; a draft of five tokens then loses a twentieth of a step


def check(case: Case, workload: WorkloadClass, arm: Arm) -> Finding | None:
    """Return that the arm's acceptance rate is lower."""
    here = case.evidence.telemetry(workload.name, arm.name)
    there = case.evidence.telemetry(workload.name, case.evidence.reference)
    mine, theirs = (None if each is None else each.acceptance_rate for each in (here, there))
    if mine is None or theirs is None or theirs - mine < NOTABLE:
        return None
    return Finding(
        kind="opposes",
        message=f"Drafts are accepted at {mine:.1%} on {arm.name}, {theirs:.1%} on "
        f"{case.evidence.reference}.",
        source="https://github.com/vllm-project/vllm/pull/55557",
        leg="pays",
    )
