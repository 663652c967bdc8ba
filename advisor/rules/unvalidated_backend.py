"""A backend that nobody has validated with this KV dtype on this
GPU: measured speed is real, measured answers are all there is.
"""

from advisor.case import Case
from advisor.dtypes import dtype_of, is_quantised, kernel_of
from advisor.evidence import Arm
from advisor.legs import questions
from advisor.rules import BACKENDS
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.deployment.gpu.sm", "evidence.arms.kernel"})

# (compute capability, how the dtype begins, part of the backend's
# name) that vLLM 0.33.0 selects by itself or documents.
VALIDATED: tuple[tuple[int, str, str], ...] = (
    (80, "fp8", "FLASHINFER"),
    (80, "fp8", "TRITON"),
    (86, "fp8", "FLASHINFER"),
    (86, "fp8", "TRITON"),
    (89, "fp8", "FLASHINFER"),
    (89, "fp8", "TRITON"),
    (90, "fp8_e4m3", "FA3"),
    (90, "fp8_e4m3", "FLASHMLA"),
    (90, "fp8_e5m2", "FLASHINFER"),
    (100, "fp8", "FLASHINFER"),
    (100, "fp8", "CUTLASS_MLA"),
    (100, "fp8", "TOKENSPEED_MLA"),
    (100, "nvfp4", "FLASHINFER"),
    (120, "fp8", "FLASHINFER"),
    (120, "fp8", "TRITON_MLA"),
)


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that a quantised arm's combination is not in the table."""
    sm = case.evidence.deployment.gpu.sm
    dtype, kernel = dtype_of(arm), kernel_of(arm, sm)
    if dtype is None or not is_quantised(arm) or kernel is None:
        return None
    if any(
        sm == capability and dtype.startswith(known) and part in kernel.upper()
        for capability, known, part in VALIDATED
    ):
        return None
    return Finding(
        kind="opposes",
        message=f"{kernel} with KV dtype {dtype} on SM{sm} is not a combination that vLLM 0.33.0 "
        "selects by itself: run it behind a canary.",
        next_step=questions.first(case, arm.name, None).step,
        source=BACKENDS,
        leg="safe",
    )
