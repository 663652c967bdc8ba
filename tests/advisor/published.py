"""Points read off the figures of "The State of FP8 KV-Cache
and Attention Quantization in vLLM" (vLLM blog, 2026-04-22).
"""

from __future__ import annotations

import numpy as np

from advisor.evidence import ContextSweep, Floats

Points = dict[int, float]

_GRID = (2048, 4096, 6144, 8192, 10240, 16384, 32768, 49152, 65536, 81920, 98304, 114688, 131072)


def _points(*values: float) -> Points:
    return dict(zip(_GRID, values, strict=True))


ITL_MS: dict[tuple[str, str], Points] = {
    ("llama-h100", "bf16"): _points(
        6.378, 6.481, 6.552, 6.561, 6.754, 6.838, 7.75, 8.653, 9.501, 10.349, 10.401, 11.249, 12.001
    ),
    ("llama-h100", "fp8"): _points(
        6.378, 6.481, 6.552, 6.68, 6.603, 6.719, 7.275, 7.779, 8.299, 8.781, 8.781, 9.103, 9.45
    ),
    ("gpt-oss-h100", "bf16"): _points(
        4.07, 4.085, 4.095, 4.1, 4.117, 4.18, 4.275, 4.53, 4.68, 4.75, 4.86, 5.01, 5.2
    ),
    ("gpt-oss-h100", "fp8"): _points(
        4.075, 4.09, 4.1, 4.124, 4.14, 4.18, 4.27, 4.4, 4.6, 4.63, 4.74, 4.85, 4.969
    ),
    ("gpt-oss-h100", "fp8-skip-sw"): _points(
        4.044, 4.054, 4.065, 4.094, 4.094, 4.134, 4.234, 4.344, 4.374, 4.527, 4.626, 4.806, 4.844
    ),
    ("llama-b200", "bf16"): _points(
        3.899, 3.931, 3.955, 3.985, 4.052, 4.121, 4.501, 4.85, 5.05, 5.549, 5.549, 5.9, 6.148
    ),
    ("llama-b200", "fp8"): _points(
        3.899, 3.931, 3.949, 3.981, 3.999, 4.05, 4.25, 4.43, 4.55, 4.649, 4.799, 5.019, 5.151
    ),
    ("gpt-oss-b200", "bf16"): {512: 3.1, 1024: 3.11}
    | _points(3.13, 3.15, 3.149, 3.18, 3.15, 3.18, 3.26, 3.28, 3.33, 3.4, 3.472, 3.55, 3.58),
    ("gpt-oss-b200", "fp8"): {512: 3.13, 1024: 3.149}
    | _points(3.16, 3.18, 3.2, 3.2, 3.19, 3.21, 3.24, 3.28, 3.28, 3.33, 3.34, 3.39, 3.43),
}

LLAMA_TTFT_SHORT_MS: Points = {4096: 15, 6144: 26, 8192: 38, 10240: 61, 16384: 142}
LLAMA_TTFT_LONG_MS: Points = {
    32768: 1277,
    49152: 2250,
    65536: 3420,
    81920: 4809,
    98304: 6500,
    114688: 8352,
    125000: 9626,
}


def plotted_sweep(arm: str, points: Points, ttft_ms: Points | None = None) -> ContextSweep:
    """Return the plotted points as a sweep with one call a length."""
    lengths: Floats = np.array(list(points), dtype=np.float64)
    ones = np.ones(lengths.size, dtype=np.int64)
    return ContextSweep(
        arm=arm,
        pair=0 * ones,
        users=ones,
        context_tokens=lengths,
        itl_ms=np.array(list(points.values()), dtype=np.float64),
        prompt_tokens=None if ttft_ms is None else lengths,
        computed_tokens=None if ttft_ms is None else lengths,
        ttft_ms=None if ttft_ms is None else np.array(list(ttft_ms.values()), dtype=np.float64),
    )
