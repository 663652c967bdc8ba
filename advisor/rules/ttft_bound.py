"""Turns that wait for their first token: cheaper decode cannot shorten them, slower prefill lengthens them."""

from __future__ import annotations

import numpy as np

from advisor import words
from advisor.case import Case
from advisor.evidence import Calls
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})

BOUND = 0.5  # share of turn time before the first token


def _share(calls: Calls) -> float:
    seen = calls.ok & np.isfinite(calls.ttft_ms) & np.isfinite(calls.turn_ms)
    return float(calls.ttft_ms[seen].sum() / calls.turn_ms[seen].sum()) if seen.any() else 0.0


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm and workload whose turns are mostly TTFT."""
    out = []
    for workload in case.evidence.workloads:
        calls = case.evidence.calls(workload.name, case.evidence.reference)
        share = 0.0 if calls is None else _share(calls)
        if share < BOUND:
            continue
        for arm in case.evidence.challengers:
            speed = case.speed(arm.name, workload.name, "ttft_ms")
            if speed is None:
                continue
            relative = speed.change.relative
            out.append(
                Finding(
                    kind="opposes" if relative.is_above(0.0) else "supports" if relative.is_below(0.0) else "informs",
                    arm=arm.name,
                    workload=workload.name,
                    message=(
                        f"{share:.0%} of the turn time of {workload.name} passes before the first token; TTFT changes by "
                        f"{words.change(relative)}."
                    ),
                    estimates=(relative,),
                    leg="pays",
                )
            )
    return tuple(out)
