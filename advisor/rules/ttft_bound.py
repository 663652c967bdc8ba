"""Turns that wait for their first token: cheaper decode
cannot shorten them, slower prefill lengthens them.
"""

import numpy as np

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm, WorkloadClass
from advisor.verdict import Finding, weight

NEEDS = frozenset({"speeds"})

BOUND = 0.5  # share of turn latency before the first token


def check(case: Case, workload: WorkloadClass, arm: Arm) -> Finding | None:
    """Return what happens to TTFT where turns are mostly TTFT."""
    calls = case.evidence.calls(workload.name, case.evidence.reference)
    speed = case.speed(arm.name, workload.name, "ttft_ms")
    if calls is None or speed is None:
        return None
    seen = calls.ok & np.isfinite(calls.ttft_ms) & np.isfinite(calls.turn_ms)
    share = float(calls.ttft_ms[seen].sum() / calls.turn_ms[seen].sum()) if seen.any() else 0.0
    if share < BOUND:
        return None
    relative = speed.change.relative
    return Finding(
        kind=weight(relative),
        message=(
            f"{share:.0%} of the turn latency of {workload.name} passes before the first "
            f"token; TTFT {words.moves(relative)}."
        ),
        estimates=(relative,),
        leg="pays",
    )
