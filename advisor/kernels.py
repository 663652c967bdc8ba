"""Names of attention kernels, as far as a server tells them."""

from __future__ import annotations

from advisor.dtypes import is_fp8
from advisor.evidence import Arm

HOPPER = 90


def kernel_of(arm: Arm, sm: int | None) -> str | None:
    """Return an arm's kernel; a version that the server does not tell is filled in where only one can be meant.

    Of vLLM's FLASH_ATTN on Hopper, FA3 alone takes an FP8 cache; only a start-up log names it.
    """
    return "FLASH_ATTN(FA3)" if arm.kernel == "FLASH_ATTN" and sm == HOPPER and is_fp8(arm) else arm.kernel
