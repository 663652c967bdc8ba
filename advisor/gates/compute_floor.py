"""No prompt is computed faster than the GPU's peak allows:
such a TTFT was served from a cache or stamped wrongly.

Floor = (2 * weights * n + 4 * heads * head_dim * layers * causal pairs) / (peak
* GPUs). The short prompts of the vLLM blog of 2026-04-22 (4k to 16k tokens in
15 to 142 ms on one H100) fail it: they need 67 to 320 ms.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.evidence import Arm, Evidence, Floats
from advisor.policy import Policy
from advisor.statistics.line import length_index
from advisor.verdict import Gate, Spoiled

NAME = "compute floor"
TOLERANCE = 0.05  # boost clocks and token counts that differ by a template
RARE = 0.01  # one call in a hundred may carry a wrong token count


def floor_ms(evidence: Evidence, arm: Arm, computed: Floats, prompt: Floats) -> Floats | None:
    """Return the least time to compute *computed* of
    *prompt* tokens, or None when model or GPU are unknown.
    """
    model, gpu = evidence.model, evidence.deployment.gpu
    if model.active_params is None or gpu.bf16_tflops is None:
        return None
    quantised = gpu.fp8_tflops or gpu.bf16_tflops
    weights_peak = (
        quantised if model.weight_bits is not None and model.weight_bits <= 8 else gpu.bf16_tflops
    )
    ms_at = 1e3 / (1e12 * evidence.deployment.tensor_parallel)
    out = 2 * model.active_params * computed / weights_peak * ms_at
    if model.heads is not None and model.head_dim is not None and model.full_layers is not None:
        dtype = arm.observed_dtype or arm.expected_dtype or ""
        attention_peak = quantised if dtype.startswith("fp8") else gpu.bf16_tflops
        pairs = (prompt**2 - (prompt - computed) ** 2) / 2
        out = (
            out
            + 4 * model.heads * model.head_dim * model.full_layers * pairs / attention_peak * ms_at
        )
    return out


def _measured(
    evidence: Evidence,
) -> Iterator[tuple[str, str | None, tuple[Floats, Floats, Floats]]]:
    """Yield arm, workload (None: a sweep), and computed
    tokens, prompt tokens and TTFT wherever all are known.
    """
    for sweep in evidence.sweeps:
        if sweep.ttft_ms is not None and sweep.computed_tokens is not None:
            prompt = sweep.computed_tokens if sweep.prompt_tokens is None else sweep.prompt_tokens
            yield sweep.arm, None, (sweep.computed_tokens, prompt, sweep.ttft_ms)
    for each in evidence.observations:
        calls = each.calls
        if calls is not None and calls.computed_tokens is not None and len(calls):
            yield (
                each.arm,
                each.workload,
                (
                    calls.computed_tokens[calls.ok],
                    calls.prompt_tokens[calls.ok],
                    calls.ttft_ms[calls.ok],
                ),
            )


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm and workload (or sweep) with TTFT and computed tokens."""
    del policy  # physics is not negotiable
    for arm, workload, (computed, prompt, ttft) in _measured(evidence):
        gate = Gate(
            name=NAME,
            arm=arm,
            workload=workload,
            message="no TTFT is faster than the GPU could compute",
        )
        floor = floor_ms(evidence, evidence.arm(arm), computed, prompt)
        seen = np.isfinite(ttft) & np.isfinite(computed) & (computed > 0)
        if floor is None:
            yield replace(
                gate,
                message="peak TFLOP/s or weights unknown: set `gpu` and `config` in the arms file "
                "to enable this check",
            )
            continue
        if not seen.any():
            yield replace(gate, message="no call is known to have computed its whole prompt")
            continue
        below = seen & (ttft < (1 - TOLERANCE) * floor)
        if below.sum() <= RARE * seen.sum():
            yield replace(gate, status="pass")
            continue
        index, lengths = length_index(computed[below])
        worst = int(np.argmax(np.bincount(index)))
        observed, limit = (float(np.median(each[below][index == worst])) for each in (ttft, floor))
        told = (
            f"TTFT of {observed:.0f} ms for {lengths[worst]:,.0f} computed tokens: the "
            f"GPU's peak allows no less than {limit:.0f} ms "
            f"({int(below.sum())} of {int(seen.sum())} calls); the prompts were cached, or "
            "the stamps are wrong"
        )
        spoils: tuple[Spoiled, ...] = ("prefill sweep",) if workload is None else ("ttft", "turn")
        yield replace(
            gate,
            status="fail",
            message=told,
            observed=observed,
            limit=limit,
            unit="ms",
            spoils=spoils,
        )
