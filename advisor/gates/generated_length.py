"""Answers have to be as long as asked: an arm that stops early
is fast for the wrong reason (MLPerf allows 90 to 110%).
"""

import math
from collections.abc import Iterator

from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.statistics.paired import same_turns
from advisor.verdict import Gate

NAME = "generated length"


def _ratio(reference: Calls, arm: Calls) -> float | None:
    """Return generated tokens of *arm* over those asked for.

    Where the trace asked for none, they are over the reference's.
    """
    left, right = same_turns(reference, arm)
    wanted = float(reference.output_tokens[left].sum())
    if arm.asked_tokens is not None:
        wanted = float(arm.asked_tokens[right].sum())
    return float(arm.output_tokens[right].sum()) / wanted if wanted > 0 else None


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm and workload."""
    for each in evidence.observations:
        reference = evidence.calls(each.workload, evidence.reference)
        if each.calls is None or reference is None:
            continue
        ratio = _ratio(reference, each.calls)
        if ratio is None or math.isnan(ratio):
            yield Gate(name=NAME, arm=each.arm, workload=each.workload, message="no token counts")
            continue
        yield Gate(
            name=NAME,
            arm=each.arm,
            workload=each.workload,
            message=f"answers were {ratio:.0%} as long as requested",
            observed=ratio,
            limit=policy.length_low if ratio < 1 else policy.length_high,
            spoils=("turn", "itl"),
        ).judged(
            good=policy.length_low <= ratio <= policy.length_high,
            but=": the arm's times are not those of the same work",
        )
