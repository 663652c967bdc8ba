"""Read a model's geometry from its `config.json`, or from a few figures.

It also counts the weights that each prompt token is multiplied
with: those of attention and of the active experts.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from agentload.errors import ProfileError
from agentload.model.profile import Experts, LayerGroup, LayerKind, ModelShape

Config: TypeAlias = Mapping[str, object]
_KINDS: Mapping[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "mamba",
    "mamba": "mamba",
}
STATE_BYTES = 4
"""Bytes of a value of the recurrent state, which vLLM keeps in float32 by default.

The short convolution is in the dtype of the weights.
"""
WEIGHT_BYTES = 2
INTERVAL = 4
"""Layers from one full-attention layer to the next, where a gated-delta-net config names none.

The figure is that of Qwen3-Next.
"""
# Fields of recurrent layers that are not supported: Kimi Linear,
# Nemotron-H, Jamba, Bamba, RecurrentGemma, MiniMax, Mamba and its kin.
_UNREAD = (
    *(
        "linear_attn_config",
        "hybrid_override_pattern",
        "attn_layer_period",
        "attn_layer_indices",
        "block_types",
        "attn_type_list",
    ),
    *(
        "full_attn_idxs",
        "ssm_cfg",
        "mamba_d_ssm",
        "mamba_d_state",
        "mamba_num_heads",
        "ssm_state_size",
    ),
)
GATED, PLAIN = 3, 2
"""Matrices of a feed-forward layer with a gate (all current families) and without."""
FIGURES: Final = ("layers", "kv_heads", "head_dim", "window", "windowed", "latent")
EXAMPLE: Final = (
    "layers=32,kv_heads=8,head_dim=128; with windows window=4096,windowed=16; latent attention "
    "is layers=61,latent=576"
)


def model_shape(config: Config, *, name: str, weight_gib: float | None = None) -> ModelShape:
    """Read the geometry of a text model, or of the text part of a multimodal one.

    Raises ProfileError for unknown layers.
    """
    nested = config.get("text_config")
    text = {**config, **nested} if isinstance(nested, Mapping) else config
    groups, heads = _groups(text, name), _whole(text, name, "num_attention_heads")
    return ModelShape(
        name=name,
        groups=groups,
        heads=heads,
        max_len=_whole(text, name, "max_position_embeddings"),
        weight_gib=weight_gib,
        weight_bits=weight_bits(text),
        active_parameters=active_parameters(text, groups, heads),
        experts=_experts(text),
    )


def _groups(text: Config, name: str) -> tuple[LayerGroup, ...]:
    layers = _whole(text, name, "num_hidden_layers")
    if "kv_lora_rank" in text:
        _refuse_unread(text, name)
        latent = _whole(text, name, "kv_lora_rank") + _whole(text, name, "qk_rope_head_dim")
        return (LayerGroup(kind="mla", layers=layers, kv_heads=1, head_dim=latent),)
    kinds = _layer_kinds(text, name, layers)
    # Layers that reuse the cache of an earlier layer keep none of their own (gemma 3n and 4).
    shared = text.get("num_kv_shared_layers")
    own = layers - (shared if isinstance(shared, int) else 0)
    found: dict[LayerKind, list[int]] = {}
    for number, kind in enumerate(kinds[:own]):
        found.setdefault(kind, []).append(number)
    return tuple(_group(text, name, kind, tuple(numbers)) for kind, numbers in found.items())


def _layer_kinds(text: Config, name: str, layers: int) -> list[LayerKind]:
    listed = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        unknown = sorted({str(kind) for kind in listed} - set(_KINDS))
        if unknown:
            raise ProfileError(
                f"{name}: unknown layer types {', '.join(unknown)}",
                hint=f"known: {', '.join(sorted(_KINDS))}",
            )
        return [_KINDS[str(kind)] for kind in listed]
    _refuse_unread(text, name)
    if "linear_num_value_heads" in text:
        spaced = (
            _whole(text, name, "full_attention_interval")
            if "full_attention_interval" in text
            else INTERVAL
        )
        return ["full" if (number + 1) % spaced == 0 else "mamba" for number in range(layers)]
    every = text.get("sliding_window_pattern")
    if isinstance(every, int) and text.get("sliding_window"):
        return ["full" if (number + 1) % every == 0 else "sliding" for number in range(layers)]
    slides = text.get("sliding_window") and text.get("use_sliding_window", True)
    return ["sliding" if slides else "full"] * layers


def _refuse_unread(text: Config, name: str) -> None:
    if strange := next((key for key in _UNREAD if text.get(key)), None):
        raise ProfileError(
            f"{name}: unknown kind of recurrent layers ('{strange}')",
            hint="agentload kv --shape sizes the attention layers only; states take an "
            "additional share of the pool",
        )


def _group(text: Config, name: str, kind: LayerKind, numbers: tuple[int, ...]) -> LayerGroup:
    if kind == "mamba":
        return LayerGroup(
            kind=kind, layers=len(numbers), state_bytes=_state_bytes(text, name), numbers=numbers
        )
    heads = _whole(text, name, "num_attention_heads")
    width = text.get("head_dim")
    kv_heads = text.get("num_key_value_heads") or heads
    if kind == "full":
        # gemma 4 gives its global layers their own heads.
        width = text.get("global_head_dim") or width
        kv_heads = text.get("num_global_key_value_heads") or kv_heads
    head_dim = width if isinstance(width, int) else _whole(text, name, "hidden_size") // heads
    window = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(kind)
    return LayerGroup(
        kind=kind,
        layers=len(numbers),
        kv_heads=kv_heads if isinstance(kv_heads, int) else heads,
        head_dim=head_dim,
        window=_whole(text, name, window) if window else None,
        numbers=numbers,
    )


def _state_bytes(text: Config, name: str) -> int:
    """Return the state bytes of a gated-delta-net layer: value heads and convolution tail."""
    _refuse_unread(text, name)
    key_heads, value_heads = (
        _whole(text, name, "linear_num_key_heads"),
        _whole(text, name, "linear_num_value_heads"),
    )
    key_dim, value_dim = (
        _whole(text, name, "linear_key_head_dim"),
        _whole(text, name, "linear_value_head_dim"),
    )
    tail = _whole(text, name, "linear_conv_kernel_dim") - 1
    convolution = (2 * key_heads * key_dim + value_heads * value_dim) * tail * WEIGHT_BYTES
    return value_heads * key_dim * value_dim * STATE_BYTES + convolution


def _experts(text: Config) -> Experts | None:
    total, active = _routed(text)
    return (
        Experts(total=total, active=active)
        if total is not None and active is not None and total > active
        else None
    )


def _routed(text: Config) -> tuple[int | None, int | None]:
    """Return how many experts a layer has, and how many of them see a token."""
    names = (
        ("num_local_experts", "num_experts", "n_routed_experts"),
        ("num_experts_per_tok", "experts_per_token"),
    )
    total, active = (
        next((found for key in keys if isinstance(found := text.get(key), int)), None)
        for keys in names
    )
    return total, active


def _whole(text: Config, name: str, key: str) -> int:
    value = text.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ProfileError(
            f"{name}: config.json needs an integer '{key}', got {value!r}",
            hint="is this the config.json of a language model?",
        )
    return value


def weight_bits(text: Config) -> int | None:
    """Return the bits of a stored weight: 16 unless quantised, None if the width is unknown."""
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
    """Count the weights that a prompt token is multiplied with; None for unknown layers.

    Embeddings and output head are left out.
    """
    hidden = text.get("hidden_size")
    if not isinstance(hidden, int) or any(
        group.kind not in {"full", "sliding", "chunked"} for group in groups
    ):
        return None
    if "nvfp4" in str(text.get("quantization_config")).lower():
        return None  # multiplied in FP4 on some GPUs, which the peaks of BF16 and FP8 do not bound
    if (fed := _fed(text, hidden)) is None:
        return None
    attention = sum(
        group.layers * group.head_dim * hidden * 2 * (heads + group.kv_heads) for group in groups
    )
    return float(attention + sum(group.layers for group in groups) * fed)


def _fed(text: Config, hidden: int) -> int | None:
    """Return the active weights of one feed-forward layer."""
    is_gated = str(text.get("hidden_act") or text.get("hidden_activation")).startswith(
        ("silu", "swish")
    )
    is_gated = is_gated or str(text.get("model_type", "")).startswith("gemma")
    matrices = GATED if is_gated else PLAIN
    wide, narrow = text.get("intermediate_size"), text.get("moe_intermediate_size")
    total, active = _routed(text)
    if total is None or active is None:
        return matrices * hidden * wide if isinstance(wide, int) else None
    # A lower bound: dense first layers and shared experts
    # would add to it, and a floor must not be too high.
    size = narrow if isinstance(narrow, int) else wide
    return matrices * hidden * size * active if isinstance(size, int) else None


def shape_of(text: str, *, max_len: int, weight_gib: float | None = None) -> ModelShape:
    """Return the shape that *text* describes, such as `layers=32,kv_heads=8,head_dim=128`.

    `windowed` layers keep `window` tokens, the others every token. Raises ProfileError
    for text that describes no shape.
    """
    figures = dict(_figure(part.strip()) for part in text.split(","))
    latent = figures.get("latent")
    wanted = ("layers",) if latent else ("layers", "kv_heads", "head_dim")
    if missing := next((name for name in wanted if name not in figures), None):
        raise ProfileError(f"'{text}' lacks '{missing}'", hint=EXAMPLE)
    groups = (
        (LayerGroup(kind="mla", layers=figures["layers"], head_dim=latent),)
        if latent
        else _windowed(text, figures)
    )
    return ModelShape(name=text, groups=groups, max_len=max_len, weight_gib=weight_gib)


def _windowed(text: str, figures: dict[str, int]) -> tuple[LayerGroup, ...]:
    layers, windowed, window = figures["layers"], figures.get("windowed", 0), figures.get("window")
    if (window is None) != (windowed == 0) or windowed >= layers:
        raise ProfileError(
            f"'{text}': windows are 'windowed' layers, fewer than all, of 'window' tokens",
            hint=EXAMPLE,
        )
    heads, width = figures["kv_heads"], figures["head_dim"]
    full = LayerGroup(kind="full", layers=layers - windowed, kv_heads=heads, head_dim=width)
    if not windowed:
        return (full,)
    return (
        LayerGroup(kind="sliding", layers=windowed, kv_heads=heads, head_dim=width, window=window),
        full,
    )


def _figure(part: str) -> tuple[str, int]:
    name, _, value = part.partition("=")
    if name not in FIGURES:
        raise ProfileError(
            f"'{name}' is not a figure of a model", hint=f"known: {', '.join(FIGURES)}"
        )
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ProfileError(
            f"'{name}' must be an integer of at least 1, got '{value}'", hint=EXAMPLE
        )
    return name, int(value)
