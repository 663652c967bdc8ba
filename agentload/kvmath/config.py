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
_WINDOWS: Mapping[LayerKind, str] = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}
"""Field that has the tokens of a window, by the kind of layer."""
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
    "linear_attn_config",
    "hybrid_override_pattern",
    "attn_layer_period",
    "attn_layer_indices",
    "block_types",
    "attn_type_list",
    "full_attn_idxs",
    "ssm_cfg",
    "mamba_d_ssm",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_state_size",
)
GATED, PLAIN = 3, 2
"""Matrices of a feed-forward layer with a gate (all current families) and without."""
FIGURES: Final = ("layers", "kv_heads", "head_dim", "window", "windowed", "latent")
EXAMPLE: Final = (
    "layers=32,kv_heads=8,head_dim=128; with windows window=4096,windowed=16; latent attention "
    "is layers=61,latent=576"
)


def position_scaling(config: Config) -> str | None:
    """Say how a config scales positions beyond those that were trained; None if it does not."""
    text = _text_part(config)
    found = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(found, Mapping):
        return None
    kind = found.get("rope_type") or found.get("type")
    if kind in {None, "default", "mrope"}:
        return None
    factor = found.get("factor")
    trained = found.get("original_max_position_embeddings")
    by = "" if factor is None else f" by {factor}"
    of = f" of {trained} tokens" if trained else ""
    return f"RoPE scaling '{kind}'{by}{of}"


def _text_part(config: Config) -> Config:
    """Return the fields of the text model, which a multimodal config has in a part of its own."""
    nested = config.get("text_config")
    if isinstance(nested, Mapping):
        return {**config, **nested}
    return config


def model_shape(config: Config, *, name: str, weight_gib: float | None = None) -> ModelShape:
    """Read the geometry of a text model, or of the text part of a multimodal one.

    Raises ProfileError for unknown layers.
    """
    text = _text_part(config)
    groups = _groups(text, name)
    heads = _whole(text, name, "num_attention_heads")
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
        compressed = _whole(text, name, "kv_lora_rank")
        positional = _whole(text, name, "qk_rope_head_dim")
        latent = compressed + positional
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
    """Return the kind of each layer: as listed, else by the spacing of the full ones."""
    listed = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return _listed_kinds([str(kind) for kind in listed], name)
    _refuse_unread(text, name)
    if "linear_num_value_heads" in text:
        spacing = INTERVAL
        if "full_attention_interval" in text:
            spacing = _whole(text, name, "full_attention_interval")
        return _spaced_kinds(layers, spacing, between="mamba")
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, int) and text.get("sliding_window"):
        return _spaced_kinds(layers, pattern, between="sliding")
    slides = text.get("sliding_window") and text.get("use_sliding_window", True)
    return ["sliding" if slides else "full"] * layers


def _listed_kinds(listed: list[str], name: str) -> list[LayerKind]:
    unknown = sorted(set(listed) - set(_KINDS))
    if unknown:
        raise ProfileError(
            f"{name}: unknown layer types {', '.join(unknown)}",
            hint=f"known: {', '.join(sorted(_KINDS))}",
        )
    return [_KINDS[kind] for kind in listed]


def _spaced_kinds(layers: int, spacing: int, *, between: LayerKind) -> list[LayerKind]:
    """Return kinds of which each *spacing*-th is full attention."""
    return ["full" if number % spacing == 0 else between for number in range(1, layers + 1)]


def _refuse_unread(text: Config, name: str) -> None:
    strange = next((key for key in _UNREAD if text.get(key)), None)
    if strange is not None:
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
    window = _WINDOWS.get(kind)
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
    key_heads = _whole(text, name, "linear_num_key_heads")
    value_heads = _whole(text, name, "linear_num_value_heads")
    key_dim = _whole(text, name, "linear_key_head_dim")
    value_dim = _whole(text, name, "linear_value_head_dim")
    tail = _whole(text, name, "linear_conv_kernel_dim") - 1
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    convolution = channels * tail * WEIGHT_BYTES
    recurrent = value_heads * key_dim * value_dim * STATE_BYTES
    return recurrent + convolution


def _experts(text: Config) -> Experts | None:
    total, active = _routed(text)
    if total is None or active is None or total <= active:
        return None
    return Experts(total=total, active=active)


def _routed(text: Config) -> tuple[int | None, int | None]:
    """Return how many experts a layer has, and how many of them see a token."""
    total = _first_whole(text, ("num_local_experts", "num_experts", "n_routed_experts"))
    active = _first_whole(text, ("num_experts_per_tok", "experts_per_token"))
    return total, active


def _first_whole(text: Config, keys: Sequence[str]) -> int | None:
    values = (text.get(key) for key in keys)
    return next((value for value in values if isinstance(value, int)), None)


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
    bits = scheme.get("bits")
    if isinstance(bits, int):
        return bits
    method = str(scheme.get("quant_method", "")).lower()
    if method in {"fp8", "fbgemm_fp8", "modelopt"}:
        return 8
    if method == "mxfp4":
        return 4
    return _bits_of_groups(scheme.get("config_groups"))


def _bits_of_groups(groups: object) -> int | None:
    """Return the bits that compressed-tensors states for the first group of layers."""
    match groups:
        case {**named} if named:
            first = next(iter(named.values()))
        case _:
            return None
    match first:
        case {"weights": {"num_bits": int(bits)}}:
            return bits
        case _:
            return None


def active_parameters(text: Config, groups: tuple[LayerGroup, ...], heads: int) -> float | None:
    """Count the weights that a prompt token is multiplied with; None for unknown layers.

    Embeddings and output head are left out.
    """
    hidden = text.get("hidden_size")
    is_known = all(group.kind in {"full", "sliding", "chunked"} for group in groups)
    if not isinstance(hidden, int) or not is_known:
        return None
    if "nvfp4" in str(text.get("quantization_config")).lower():
        return None  # multiplied in FP4 on some GPUs, which the peaks of BF16 and FP8 do not bound
    feed_forward = _feed_forward(text, hidden)
    if feed_forward is None:
        return None
    count = 0
    for group in groups:
        # Queries and output have a head each, keys and values one of the group's.
        attention = 2 * (heads + group.kv_heads) * group.head_dim * hidden
        count += group.layers * (attention + feed_forward)
    return float(count)


def _feed_forward(text: Config, hidden: int) -> int | None:
    """Return the active weights of one feed-forward layer."""
    activation = str(text.get("hidden_act") or text.get("hidden_activation"))
    family = str(text.get("model_type", ""))
    is_gated = activation.startswith(("silu", "swish")) or family.startswith("gemma")
    matrices = GATED if is_gated else PLAIN
    size = text.get("intermediate_size")
    total, active = _routed(text)
    experts = 1
    if total is not None and active is not None:
        # A lower bound: dense first layers and shared experts
        # would add to it, and a floor must not be too high.
        experts = active
        narrow = text.get("moe_intermediate_size")
        size = narrow if isinstance(narrow, int) else size
    return matrices * hidden * size * experts if isinstance(size, int) else None


def shape_of(text: str, *, max_len: int, weight_gib: float | None = None) -> ModelShape:
    """Return the shape that *text* describes, such as `layers=32,kv_heads=8,head_dim=128`.

    `windowed` layers keep `window` tokens, the others every token. Raises ProfileError
    for text that describes no shape.
    """
    figures = dict(_figure(part.strip()) for part in text.split(","))
    latent = figures.get("latent")
    wanted = ("layers",) if latent else ("layers", "kv_heads", "head_dim")
    missing = next((name for name in wanted if name not in figures), None)
    if missing is not None:
        raise ProfileError(f"'{text}' lacks '{missing}'", hint=EXAMPLE)
    if latent:
        mla = LayerGroup(kind="mla", layers=figures["layers"], head_dim=latent)
        return ModelShape(name=text, groups=(mla,), max_len=max_len, weight_gib=weight_gib)
    groups = _windowed(text, figures)
    return ModelShape(name=text, groups=groups, max_len=max_len, weight_gib=weight_gib)


def _windowed(text: str, figures: dict[str, int]) -> tuple[LayerGroup, ...]:
    layers = figures["layers"]
    windowed = figures.get("windowed", 0)
    window = figures.get("window")
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
