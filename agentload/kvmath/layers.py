"""How many bytes the KV cache of one layer takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentload.errors import ProfileError
from agentload.model.profile import KvDtype, LayerGroup, ModelShape

ELEMENT_BYTES: Final[Mapping[KvDtype, int]] = {
    "auto": 2,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_per_token_head": 1,
}
SCALE_BYTES: Final = 8
"""`fp8_per_token_head` keeps two float32 scales a head and token."""
DS_MLA_BYTES: Final = 656
"""`fp8_ds_mla`: 512 FP8 values with their scales and 64 BF16 rotary ones, in one entry a token."""


def token_bytes(group: LayerGroup, dtype: KvDtype) -> int:
    """Return what one token costs in one layer; 0 where the state does not grow with tokens."""
    if group.kind == "mamba":
        return 0
    if dtype == "fp8_ds_mla":
        if group.kind != "mla":
            raise ProfileError("fp8_ds_mla stores MLA latents only", hint="use kv_dtype fp8 for other attention")
        return DS_MLA_BYTES
    value = 0 if group.kind == "mla" else group.head_dim if group.head_dim_v is None else group.head_dim_v
    scales = SCALE_BYTES if dtype == "fp8_per_token_head" else 0
    return group.kv_heads * ((group.head_dim + value) * ELEMENT_BYTES[dtype] + scales)


def stored(model: ModelShape, dtype: KvDtype, skip_layers: tuple[str, ...]) -> tuple[tuple[LayerGroup, KvDtype], ...]:
    """Pair each group of layers with the dtype it is stored in: skipped layers stay at that of the weights."""
    numbers = {int(name) for name in skip_layers if name.isdigit()}
    unknown = [name for name in skip_layers if not name.isdigit() and name != "sliding_window"]
    if unknown:
        raise ProfileError(f"cannot skip layers {', '.join(unknown)}", hint="sliding_window, or layer numbers")
    pairs: list[tuple[LayerGroup, KvDtype]] = []
    for group in model.groups:
        skipped = group.layers if group.kind == "sliding" and "sliding_window" in skip_layers else _numbered(model, group, numbers)
        if skipped < group.layers:
            pairs.append((_resized(group, group.layers - skipped), dtype))
        if skipped:
            pairs.append((_resized(group, skipped), "auto"))
    return tuple(pairs)


def bytes_per_token(model: ModelShape, dtype: KvDtype, skip_layers: tuple[str, ...] = ()) -> int:
    """Return what a token costs in all layers that keep every token: what decode attention reads."""
    return sum(
        group.layers * token_bytes(group, kept) for group, kept in stored(model, dtype, skip_layers) if group.kind in {"full", "mla"}
    )


def _numbered(model: ModelShape, group: LayerGroup, numbers: set[int]) -> int:
    if not numbers:
        return 0
    if group.numbers:
        return len(numbers.intersection(group.numbers))
    if len(model.groups) == 1:
        return len([number for number in numbers if number < group.layers])
    raise ProfileError(
        f"model {model.name}: cannot skip layers by number, because its groups do not list theirs", hint="model.groups[].numbers"
    )


def _resized(group: LayerGroup, layers: int) -> LayerGroup:
    return LayerGroup(
        kind=group.kind,
        layers=layers,
        kv_heads=group.kv_heads,
        head_dim=group.head_dim,
        head_dim_v=group.head_dim_v,
        window=group.window,
        state_bytes=group.state_bytes,
        source_tokens=group.source_tokens,
    )
