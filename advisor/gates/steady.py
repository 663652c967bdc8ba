"""Absolute figures need a settled server: warm-up is cut by MSER-5, and the last third has to look like the first."""

from __future__ import annotations

import numpy as np

from advisor.evidence import Calls, Evidence, Floats
from advisor.policy import Policy
from advisor.statistics.warmup import mser5
from advisor.verdict import Gate

NAME = "steady"


def _level(calls: Calls) -> Floats:
    """Return the log token latency in time order, with what the length of the context explains taken out."""
    length = calls.prompt_tokens + calls.output_tokens
    seen = calls.ok & np.isfinite(calls.tpot_ms) & (calls.tpot_ms > 0) & np.isfinite(length) & (length > 0)
    order = np.argsort(calls.start_s[seen], kind="stable")
    y, x = np.log(calls.tpot_ms[seen][order]), np.log(length[seen][order])
    spread = x - x.mean() if x.size else x
    variance = float(spread @ spread)
    slope = float(spread @ y) / variance if variance > 0 else 0.0
    level: Floats = y - slope * spread
    return level


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm and workload with enough calls; a drift spoils nothing that is compared in pairs."""
    del policy  # the check has its own level
    gates = []
    for each in evidence.observations:
        if each.calls is None or not len(each.calls):
            continue
        found = mser5(_level(each.calls))
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
            )
        )
    return tuple(gates)
