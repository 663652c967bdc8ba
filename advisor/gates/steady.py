"""Absolute figures need a settled server: warm-up is cut by MSER-5, and the last third has to look like the first."""

from __future__ import annotations

import numpy as np

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.statistics.warmup import mser5
from advisor.verdict import Gate

NAME = "steady"


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm and workload with enough calls; a drift spoils capacity, block pairs cancel it elsewhere."""
    del policy  # the check has its own level
    gates = []
    for each in evidence.observations:
        if each.calls is None or not len(each.calls):
            continue
        calls = each.calls
        order = np.argsort(calls.start_s[calls.ok], kind="stable")
        series = calls.tpot_ms[calls.ok][order]
        found = mser5(np.log(series[np.isfinite(series) & (series > 0)]))
        if found is None:
            continue
        if found.moved is None:
            told = "token latency was still settling in the second half of the run"
        else:
            told = f"token latency of the last third lies {np.expm1(found.moved):+.1%} from the first"
        gates.append(
            Gate(
                name=NAME,
                status="pass" if found.settled else "fail",
                arm=each.arm,
                workload=each.workload,
                message=told if found.settled else f"{told}: pairs cancel a drift, absolute figures do not",
                observed=float(found.drop),
                unit="calls dropped",
                spoils=() if found.settled else ("capacity",),
            )
        )
    return tuple(gates)
