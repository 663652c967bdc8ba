"""The arm breaks a service level that the reference holds: a faster mean does not help the turn that comes too late."""

from __future__ import annotations

import numpy as np

from advisor.case import Case
from advisor.estimate import Estimate
from advisor.evidence import Calls
from advisor.statistics.matching import session_numbers
from advisor.statistics.quantiles import quantile
from advisor.verdict import Finding, Inequality

NEEDS = frozenset({"policy.slos", "speeds"})


def _tail(calls: Calls, column: str, share: float) -> Estimate | None:
    return quantile(np.where(calls.ok, getattr(calls, column), np.nan), session_numbers(calls), share, unit="ms")


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm, workload and limit that the arm surely breaks and the reference holds."""
    out = []
    for workload in case.evidence.workloads:
        slo, reference = case.policy.slo(workload.name), case.evidence.calls(workload.name, case.evidence.reference)
        if slo is None or reference is None:
            continue
        for arm in case.evidence.challengers:
            calls = case.evidence.calls(workload.name, arm.name)
            for column, limit in (("ttft_ms", slo.ttft_ms), ("tpot_ms", slo.tpot_ms), ("turn_ms", slo.turn_ms)):
                if limit is None or calls is None:
                    continue
                mine, theirs = _tail(calls, column, slo.share), _tail(reference, column, slo.share)
                if mine is None or theirs is None or not mine.is_above(limit) or theirs.value > limit:
                    continue
                name = f"{column.removesuffix('_ms')} p{100 * slo.share:.0f}"
                out.append(
                    Finding(
                        kind="blocks",
                        arm=arm.name,
                        workload=workload.name,
                        message=(
                            f"{name} of {workload.name} is {mine.value:.0f} ms on {arm.name} and {theirs.value:.0f} ms on "
                            f"{case.evidence.reference}; the limit is {limit:.0f} ms."
                        ),
                        estimates=(mine, theirs),
                        inequality=Inequality(
                            left=f"{name} on {arm.name}", observed=mine, relation="<=", right=f"{limit:.0f} ms", holds=False
                        ),
                        flips=f"a limit above {mine.high or mine.value:.0f} ms",
                        leg="pays",
                        asks_for="avoid",
                    )
                )
    return tuple(out)
