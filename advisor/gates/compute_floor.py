"""No prompt is computed faster than the GPU's peak allows:
such a TTFT was served from a cache or stamped wrongly.

Floor = (2 * weights * n + 4 * heads * head_dim * layers * causal pairs) / (peak
* GPUs). The short prompts of the vLLM blog of 2026-04-22 (4k to 16k tokens in
15 to 142 ms on one H100) fail it: they need 67 to 320 ms.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from advisor.dtypes import is_fp8
from advisor.evidence import Arm, Evidence, Floats
from advisor.policy import Policy
from advisor.statistics.line import length_index
from advisor.verdict import Gate, Spoiled

NAME = "compute floor"
TOLERANCE = 0.05  # boost clocks and token counts that differ by a template
RARE = 0.01  # one call in a hundred may carry a wrong token count


class _Prefills(NamedTuple):
    """What calls of one arm had to compute, and how soon they answered."""

    arm: str
    workload: str | None  # None: a sweep
    computed: Floats  # tokens
    prompt: Floats  # tokens
    ttft_ms: Floats


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm and workload (or sweep) with TTFT and computed tokens."""
    del policy  # physics is not negotiable
    for each in _prefills(evidence):
        gate = Gate(
            name=NAME,
            arm=each.arm,
            workload=each.workload,
            message="no TTFT is faster than the GPU could compute",
        )
        floor = floor_ms(evidence, evidence.arm(each.arm), each.computed, each.prompt)
        if floor is not None:
            yield _judged(gate, each, floor)
        else:
            yield replace(
                gate,
                message="peak TFLOP/s or weights unknown: set `gpu` and `config` in the arms file "
                "to enable this check",
            )


def _prefills(evidence: Evidence) -> Iterator[_Prefills]:
    """Yield the calls of sweeps and workloads whose times and tokens are known."""
    for sweep in evidence.sweeps:
        computed = sweep.computed_tokens
        if sweep.ttft_ms is not None and computed is not None:
            prompt = computed if sweep.prompt_tokens is None else sweep.prompt_tokens
            yield _Prefills(sweep.arm, None, computed, prompt, sweep.ttft_ms)
    for each in evidence.observations:
        calls = each.calls
        if calls and calls.computed_tokens is not None:
            yield _Prefills(
                each.arm,
                each.workload,
                calls.computed_tokens[calls.ok],
                calls.prompt_tokens[calls.ok],
                calls.ttft_ms[calls.ok],
            )


def floor_ms(evidence: Evidence, arm: Arm, computed: Floats, prompt: Floats) -> Floats | None:
    """Return the least time to compute *computed* of *prompt* tokens.

    None where the model or the GPU is unknown.
    """
    model = evidence.model
    gpu = evidence.deployment.gpu
    if model.active_params is None or gpu.bf16_tflops is None:
        return None
    quantised = gpu.fp8_tflops or gpu.bf16_tflops
    are_small = model.weight_bits is not None and model.weight_bits <= 8
    weights_peak = quantised if are_small else gpu.bf16_tflops
    ms_at = 1e3 / (1e12 * evidence.deployment.tensor_parallel)
    weights_ms = 2 * model.active_params * computed / weights_peak * ms_at
    if model.heads is None or model.head_dim is None or model.full_layers is None:
        return weights_ms
    attention_peak = quantised if is_fp8(arm) else gpu.bf16_tflops
    pairs = (prompt**2 - (prompt - computed) ** 2) / 2
    width = 4 * model.heads * model.head_dim
    return weights_ms + width * model.full_layers * pairs / attention_peak * ms_at


def _judged(gate: Gate, prefills: _Prefills, floor: Floats) -> Gate:
    """Return the gate as passed, or as failed by the length that most calls below it have."""
    ttft_ms = prefills.ttft_ms
    computed = prefills.computed
    seen = np.isfinite(ttft_ms) & np.isfinite(computed) & (computed > 0)
    if not seen.any():
        return replace(gate, message="no call is known to have computed its whole prompt")
    below = seen & (ttft_ms < (1 - TOLERANCE) * floor)
    if below.sum() <= RARE * seen.sum():
        return replace(gate, status="pass")
    index, lengths = length_index(computed[below])
    worst = int(np.argmax(np.bincount(index)))
    is_worst = index == worst
    observed = float(np.median(ttft_ms[below][is_worst]))
    limit = float(np.median(floor[below][is_worst]))
    message = (
        f"TTFT of {observed:.0f} ms for {lengths[worst]:,.0f} computed tokens: the "
        f"GPU's peak allows no less than {limit:.0f} ms "
        f"({int(below.sum())} of {int(seen.sum())} calls); the prompts were cached, or "
        "the stamps are wrong"
    )
    spoils: tuple[Spoiled, ...] = ("ttft", "turn")
    if prefills.workload is None:
        spoils = ("prefill sweep",)
    return replace(
        gate,
        status="fail",
        message=message,
        observed=observed,
        limit=limit,
        unit="ms",
        spoils=spoils,
    )
