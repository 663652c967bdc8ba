"""Heads of 256 and more: attention in FP8 prefill takes 1.7 times as long on Hopper, and decode gains nothing, in the kernel tables.

Two-level accumulation needs registers that a head of 256 does not leave. Blackwell's kernels do not have the problem, so the rule
speaks for SM90 only, and a measured prefill time outranks it.
"""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_fp8
from advisor.sources import BLOG, KERNELS
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.model.head_dim", "evidence.deployment.gpu.sm"})

LARGE_HEAD = 256
HOPPER = 90
PUBLISHED_RATIO = "1.55 to 1.62"  # gemma-4-E2B on one H100: as drawn, and 1.12e-6 for 6.93e-7 ms/token^2 as printed


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an FP8 arm and workload (or one for the server, where prefill time was not measured)."""
    model, gpu = case.evidence.model, case.evidence.deployment.gpu
    if model.head_dim is None or model.head_dim < LARGE_HEAD or gpu.sm != HOPPER:
        return ()
    out = []
    for arm in case.evidence.challengers:
        if not is_fp8(arm):
            continue
        published = (
            f"head_dim {model.head_dim} on Hopper: attention's share of prefill (its quadratic term) took {PUBLISHED_RATIO} times as long "
            "in FP8 in the published run, on a kernel that is not certain"
        )
        measured = [
            (workload.name, speed.change.relative)
            for workload in case.evidence.workloads
            if (speed := case.speed(arm.name, workload.name, "ttft_ms")) is not None
        ]
        if not measured:
            out.append(
                Finding(
                    kind="opposes",
                    arm=arm.name,
                    message=f"{published}; prefill was not measured here.",
                    next_step=case.context_sweep(),
                    source=f"{BLOG}; {KERNELS}",
                    leg="pays",
                    prior=True,
                )
            )
        for name, relative in measured:
            slower = relative.is_above(0.0)
            out.append(
                Finding(
                    kind="opposes" if slower else "informs",
                    arm=arm.name,
                    workload=name,
                    message=f"{published}; on {name} TTFT changes by {words.change(relative)} here.",
                    estimates=(relative,),
                    flips="a kernel without the register limit (Blackwell), or BF16 for prefill-heavy pools" if slower else None,
                    source=f"{BLOG}; {KERNELS}",
                    leg="pays",
                )
            )
    return tuple(out)
