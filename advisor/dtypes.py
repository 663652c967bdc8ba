"""Names of KV-cache dtypes and attention kernels, as vLLM spells them."""

from advisor.evidence import Arm

# vLLM reads fp8 as fp8_e4m3
_SAME = {"fp8": "fp8_e4m3", "bf16": "bfloat16", "fp16": "float16"}
_WIDE = frozenset({"auto", "bfloat16", "float16", "float32"})
HOPPER = 90


def canonical(dtype: str) -> str:
    """Return the one name of a dtype that has several."""
    return _SAME.get(dtype, dtype)


def dtype_of(arm: Arm) -> str | None:
    """Return the dtype of an arm's KV cache: what the server says, else what was asked for."""
    found = arm.observed_dtype or arm.expected_dtype
    return None if found is None else canonical(found)


def is_quantised(arm: Arm) -> bool:
    """Say whether an arm stores fewer than 16 bits a value."""
    dtype = dtype_of(arm)
    return dtype is not None and dtype not in _WIDE


def is_fp8(arm: Arm) -> bool:
    """Say whether an arm stores FP8 values."""
    return (dtype_of(arm) or "").startswith("fp8")


def kernel_of(arm: Arm, sm: int | None) -> str | None:
    """Return an arm's kernel, with a version its server omits where only one can be meant.

    On Hopper, only FA3 of vLLM's FLASH_ATTN takes an FP8 cache; only a start-up log names it.
    """
    if arm.kernel == "FLASH_ATTN" and sm == HOPPER and is_fp8(arm):
        return "FLASH_ATTN(FA3)"
    return arm.kernel


def same_numbers(mine: Arm, theirs: Arm) -> bool:
    """Say whether two arms share KV dtype and kernel, so that answers cannot change.

    No where either dtype or the kernel is not known.
    """
    if mine.observed_dtype is None or theirs.observed_dtype is None or mine.kernel is None:
        return False
    return (
        canonical(mine.observed_dtype) == canonical(theirs.observed_dtype)
        and mine.kernel == theirs.kernel
    )
