"""What a prompt token is multiplied with: the weights of attention and of the experts that are active, and how wide they are stored."""

from __future__ import annotations

from collections.abc import Mapping

from agentload.model.profile import LayerGroup

Config = Mapping[str, object]

GATED, PLAIN = 3, 2
"""Matrices of a feed-forward layer with a gate (every family of today) and of one without."""


def weight_bits(text: Config) -> int | None:
    """Return the width of the stored weights: 16 unless the config names a quantisation; None for one that it does not explain."""
    scheme = text.get("quantization_config")
    if not isinstance(scheme, Mapping):
        return 16
    if isinstance(bits := scheme.get("bits"), int):
        return bits
    method = str(scheme.get("quant_method", "")).lower()
    if method in {"fp8", "fbgemm_fp8", "modelopt"}:
        return 8
    if method == "mxfp4":
        return 4
    groups = scheme.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    found = weights.get("num_bits") if isinstance(weights, Mapping) else None
    return found if isinstance(found, int) else None


def active_parameters(text: Config, groups: tuple[LayerGroup, ...], heads: int) -> float | None:
    """Return the weights that one prompt token is multiplied with, neither embeddings nor output head; None for layers not known."""
    hidden = text.get("hidden_size")
    if not isinstance(hidden, int) or any(group.kind not in {"full", "sliding", "chunked"} for group in groups):
        return None
    if "nvfp4" in str(text.get("quantization_config")).lower():
        return None  # multiplied in FP4 where the GPU can: no peak of BF16 or FP8 bounds them
    if (fed := _fed(text, hidden)) is None:
        return None
    attention = sum(group.layers * group.head_dim * hidden * 2 * (heads + group.kv_heads) for group in groups)
    return float(attention + sum(group.layers for group in groups) * fed)


def _fed(text: Config, hidden: int) -> int | None:
    """Return the active weights of one feed-forward layer."""
    is_gated = str(text.get("hidden_act") or text.get("hidden_activation")).startswith(("silu", "swish")) or _is_gemma(text)
    matrices = GATED if is_gated else PLAIN
    wide, narrow = text.get("intermediate_size"), text.get("moe_intermediate_size")
    total = next((text[key] for key in ("num_local_experts", "num_experts", "n_routed_experts") if isinstance(text.get(key), int)), None)
    active = next((text[key] for key in ("num_experts_per_tok", "experts_per_token") if isinstance(text.get(key), int)), None)
    if not isinstance(total, int) or not isinstance(active, int):
        return matrices * hidden * wide if isinstance(wide, int) else None
    # The least that it can be: dense first layers and shared experts only add to it, and a floor must not be too high.
    size = narrow if isinstance(narrow, int) else wide
    return matrices * hidden * size * active if isinstance(size, int) else None


def _is_gemma(text: Config) -> bool:
    return str(text.get("model_type", "")).startswith("gemma")
