"""Arms for tests: small machines with round numbers, and the shipped ones."""

from __future__ import annotations

from dataclasses import replace

from agentload.builtin import find
from agentload.emulator.profile import arm, parse
from agentload.emulator.steptime import off
from agentload.model.profile import (
    ArmProfile,
    Gpu,
    LayerGroup,
    ModelShape,
    Noise,
    Server,
    Speculation,
    StepTime,
)

BLOCK = 16
GPU = Gpu(name="test", memory_gib=80, bandwidth_tb_s=3, bf16_tflops=1000, compute_capability=90)
MODEL = ModelShape(
    name="test",
    groups=(LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=64),),
    heads=1,
    max_len=100_000,
)
BYTES_PER_BLOCK = BLOCK * 2 * 64 * 2
STEP = StepTime(
    decode_ms=10.0,
    decode_ms_per_token=0.001,
    prefill_ms_per_token=0.1,
    prefill_ms_per_pair=1e-6,
    weights_ms=8.0,
    host_ms_per_token=0.01,
    batch8_ms=1.0,
    batch8_attention=0.1,
    known_to_batch=4,
)


def small(
    *,
    blocks: int = 10_000,
    max_len: int = 1000,
    seqs: int = 8,
    budget: int = 100,
    noise: Noise | None = None,
    drafts: Speculation | None = None,
) -> ArmProfile:
    """An arm with a pool of so many usable blocks of 16 tokens."""
    return ArmProfile(
        name="test",
        profile="test",
        gpu=GPU,
        model=MODEL,
        server=Server(
            software="vLLM 0.0",
            max_model_len=max_len,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            kv_cache_memory_bytes=(blocks + 1) * BYTES_PER_BLOCK,
        ),
        kv_dtype="bf16",
        step=STEP,
        noise=noise or Noise(),
        speculation=drafts,
    )


def without_cache(of: ArmProfile) -> ArmProfile:
    """The arm with prefix caching off."""
    return replace(of, server=replace(of.server, prefix_caching=False))


def shipped(profile: str, name: str) -> ArmProfile:
    """An arm that travels with the package, on a deterministic machine."""
    return off(arm(parse(find("profiles", profile).read_text(), name=profile), name))
