"""The switch of dtype switched the attention kernel too:
what the arm gained or lost is not the dtype's alone.

The verdict on the flag stands, because the flag brings the kernel with it; the credit
does not. A third arm (the reference's dtype on the arm's kernel) separates them.
"""

from advisor.case import Case
from advisor.dtypes import dtype_of
from advisor.evidence import Arm
from advisor.rules import BACKENDS
from advisor.steps import ArmsFile
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.arms.kernel"})

SAME_KERNEL = "bf16-same-backend"  # arm of an arms file


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that the arm has another dtype and another kernel
    than the reference, and the third arm that separates them.
    """
    evidence = case.evidence
    reference = evidence.base
    if (
        arm.kernel is None
        or reference.kernel is None
        or arm.kernel == reference.kernel
        or dtype_of(arm) == dtype_of(reference)
    ):
        return None
    third = next(
        (
            each
            for each in evidence.arms
            if each.kernel == arm.kernel and dtype_of(each) == dtype_of(reference)
        ),
        None,
    )
    if third is None:
        backend = arm.kernel.split("(")[0]
        told = (
            "A difference may come from the dtype or from the kernel. An arm such as "
            f"{SAME_KERNEL} (--attention-backend {backend}) separates them."
        )
    else:
        told = (
            f"{third.name} has the reference's dtype on that kernel: compare {arm.name} with it "
            "for the dtype's own effect."
        )
    return Finding(
        kind="informs",
        message=f"{arm.name} runs {arm.kernel}, {reference.name} runs {reference.kernel}. {told}",
        flips="a third arm that separates dtype from kernel" if third is None else None,
        next_step=ArmsFile(arm=SAME_KERNEL) if third is None else None,
        source=BACKENDS,
        leg="pays",
    )
