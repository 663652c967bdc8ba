from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.pool import GIB, kv_bytes, pool_of
from agentload.model.profile import ArmProfile, Gpu, LayerGroup, ModelShape, Server

H100 = Gpu(name="H100", memory_gib=80, bandwidth_tb_s=3.35, bf16_tflops=989, compute_capability=90)
LLAMA = ModelShape(
    name="llama", groups=(LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128),), heads=32, max_len=131072, weight_gib=15
)
SERVER = Server(software="vLLM", max_model_len=131072, overhead_gib=1)
ARM = ArmProfile(name="bf16", profile="p", gpu=H100, model=LLAMA, server=SERVER, kv_dtype="bf16")


def test_the_pool_is_what_weights_and_overhead_leave_of_the_utilisation() -> None:
    assert kv_bytes(H100, LLAMA, SERVER) == 56 * GIB


def test_fp8_holds_twice_the_tokens_in_the_same_memory() -> None:
    assert [pool_of(replace(ARM, kv_dtype=dtype)).tokens for dtype in ("bf16", "fp8")] == [458752, 917504]


def test_a_pool_set_by_hand_overrides_the_utilisation() -> None:
    assert pool_of(replace(ARM, server=replace(SERVER, kv_cache_memory_bytes=32 * GIB))).tokens == 262144


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (replace(ARM, model=replace(LLAMA, weight_gib=72)), "leaves no memory"),
        (replace(ARM, model=replace(LLAMA, weight_gib=None)), "size of its loaded weights is unknown"),
        (replace(ARM, server=replace(SERVER, kv_cache_memory_bytes=GIB)), "does not hold one request of 131072 tokens"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(arm: ArmProfile, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        pool_of(arm)
