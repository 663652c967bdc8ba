"""Heads of 256 and more: attention in FP8 prefill takes 1.7 times
as long on Hopper, and decode gains nothing, in the kernel tables.

Two-level accumulation needs registers that a head of 256 does not leave. Blackwell's kernels do
not have the problem, so the rule speaks for SM90 only, and a measured prefill time outranks it.
"""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.dtypes import HOPPER, is_fp8
from advisor.estimate import present
from advisor.evidence import Arm
from advisor.rules import BLOG, KERNELS
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.model.head_dim", "evidence.deployment.gpu.sm"})

LARGE_HEAD = 256
# gemma-4-E2B on one H100: as drawn, and 1.12e-6 for 6.93e-7 ms/token^2 as printed
PUBLISHED_RATIO = "1.55 to 1.62"


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield one finding a workload of an FP8 arm (or one
    for the server, where prefill time was not measured).
    """
    model, gpu = case.evidence.model, case.evidence.deployment.gpu
    if model.head_dim is None or model.head_dim < LARGE_HEAD or gpu.sm != HOPPER or not is_fp8(arm):
        return
    published = (
        f"In a published run on Hopper, attention in prefill took {PUBLISHED_RATIO} times as long "
        f"in FP8 where heads are as large as here (head_dim {model.head_dim}); which kernel ran is "
        "not certain"
    )
    source = f"{BLOG}; {KERNELS}"
    speeds = present(case.speed(arm.name, each.name, "ttft_ms") for each in case.evidence.workloads)
    if not speeds:
        told, sweep = f"{published}. Prefill was not measured here.", case.context_sweep()
        yield Finding(
            kind="opposes", message=told, next_step=sweep, source=source, leg="pays", prior=True
        )
    for speed in speeds:
        relative, workload = speed.change.relative, speed.workload
        slower = relative.is_above(0.0)
        yield Finding(
            kind="opposes" if slower else "informs",
            workload=workload,
            message=f"{published}. Here, TTFT of {workload} {words.moves(relative)}.",
            estimates=(relative,),
            flips="a kernel without the register limit (Blackwell), or BF16 for prefill-heavy pools"
            if slower
            else None,
            source=source,
            leg="pays",
        )
