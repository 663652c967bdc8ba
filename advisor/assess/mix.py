"""Weigh the workloads of the mix: by its share of the server's time where that is known, else by the reference's time in turns."""

from __future__ import annotations

import numpy as np

from advisor.evidence import Evidence


def shares(evidence: Evidence) -> tuple[tuple[str, float], ...]:
    """Return the weight of each workload, adding up to 1 (equal weights when nothing was observed)."""
    told = {each.name: each.gpu_time_share for each in evidence.workloads}
    weights = {name: float(share) for name, share in told.items() if share is not None}
    if len(weights) < len(told):
        weights = {}
        for name in told:
            calls = evidence.calls(name, evidence.reference)
            weights[name] = 0.0 if calls is None else float(np.nansum(calls.turn_ms[calls.ok]))
    total = sum(weights.values())
    if total <= 0:
        return tuple((name, 1 / len(told)) for name in told)
    return tuple((name, weight / total) for name, weight in weights.items())
