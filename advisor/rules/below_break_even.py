"""Contexts shorter than the break-even of their batch: the
arm's dearer step is not yet paid for by cheaper reads.

Break-even is in KV tokens of the whole batch, so requests that decode together share it.
"""

import numpy as np

from advisor import words
from advisor.assess.reach import contexts
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.evidence import Arm, WorkloadClass
from advisor.verdict import Finding, Inequality

NEEDS = frozenset({"break_even", "evidence.workloads.batch"})


def _held(case: Case, workload: WorkloadClass) -> float | None:
    """Return the KV tokens of the batches that a class decodes in:
    with their neighbours of other classes, where those were seen.
    """
    calls = case.evidence.calls(workload.name, case.evidence.reference)
    if (
        calls is not None
        and calls.batch_kv_tokens is not None
        and np.isfinite(calls.batch_kv_tokens).any()
    ):
        return float(np.nanmedian(calls.batch_kv_tokens))
    lengths = contexts(case.evidence, workload.name)
    return (
        None
        if workload.batch is None or lengths is None or not lengths.size
        else workload.batch * float(np.median(lengths))
    )


def check(case: Case, arm: Arm, workload: WorkloadClass) -> Finding | None:
    """Return on which side of a bounded set or a half-line
    the workload is; the largest batch measured speaks.
    """
    sets = [
        each
        for each in case.break_even
        if each.arm == arm.name and each.shape in ("bounded", "half-line")
    ]
    held = _held(case, workload)
    if not sets or held is None:
        return None
    found = sets[-1]
    bound = Estimate(
        value=found.tokens if found.tokens is not None else found.high or 0.0,
        low=found.low,
        high=found.high,
        n=found.pairs or 1,
        unit="KV tokens",
        method="Fieller set of the paired difference",
    )
    low, high = found.low or 0.0, found.high if found.high is not None else float("inf")
    side = "below" if held < low else "above" if held > high else None
    ahead = side is not None and side == found.ahead
    if side is None:
        told = "too close to call, within the break-even"
    else:
        told = (
            f"{side} the break-even, where {arm.name} is {'ahead' if ahead else 'behind'} in "
            "time per output token"
        )
    ends = words.interval(
        words.tokens(low), None if found.high is None else words.tokens(found.high)
    )
    return Finding(
        kind="informs" if side is None else "supports" if ahead else "opposes",
        message=f"{workload.name} decodes in batches of {words.tokens(held)} KV tokens: {told} "
        f"{ends}.",
        estimates=(bound,),
        inequality=Inequality(
            left=f"KV tokens of the batch on {workload.name}",
            observed=Estimate(
                value=held, low=None, high=None, n=1, unit="KV tokens", method="median"
            ),
            relation=">" if found.ahead == "above" else "<",
            right="break-even "
            f"{'' if found.tokens is None else words.tokens(found.tokens) + ' '}{ends}",
            holds=None if side is None else ahead,
        ),
        flips=f"batches of {words.tokens(high)}" if side == "below" and np.isfinite(high) else None,
        next_step=case.context_sweep() if side is None else None,
        leg="pays",
    )
