"""Compare the KV-cache configurations of one model: bytes, pool, concurrency and cautions."""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from agentload.errors import ProfileError
from agentload.kvmath.layout import bytes_per_token, layout, token_bytes
from agentload.kvmath.pool import pool
from agentload.model.kv import USUAL, KvDtype
from agentload.model.profile import LayerGroup, ModelShape
from agentload.model.record import Record

WIDE_HEAD: Final = 256
"""Largest head for FP8 in FlashAttention 3; larger ones use another kernel (vLLM 0.33 table)."""


class Size(Record):
    """The size of one configuration."""

    arm: str
    bytes_per_token: int
    """In all layers that keep every token: what a decode step reads for each token."""
    page_bytes: int
    pages: int | None = None
    """None, as what follows, if the memory does not hold one request of full length."""
    pool_tokens: int | None = None
    concurrency: float | None = None
    against_first: float | None = None
    """Pool tokens as a multiple of the first configuration's."""


class LayerSize(Record):
    """The size of one layer of a kind, at two bytes and at one."""

    kind: str
    layers: int
    token_bytes: tuple[int, int]
    page_bytes: tuple[int, int]
    """Of its own block or state, before pages of all kinds are made equal."""


def sizes(
    model: ModelShape,
    memory_bytes: int,
    *,
    max_model_len: int,
    in_flight: int,
    block_tokens: int = 16,
) -> tuple[Size, ...]:
    """Size the pool of every usual configuration that fits the model.

    *in_flight* is max_num_batched_tokens.
    """
    has_windows = any(group.kind == "sliding" for group in model.groups)
    out: list[Size] = []
    for recipe in USUAL:
        if recipe.needs_windows and not has_windows:
            continue
        cut = layout(model, recipe.dtype, skip_layers=recipe.skip_layers, block_tokens=block_tokens)
        size = Size(
            arm=recipe.arm,
            bytes_per_token=bytes_per_token(model, recipe.dtype, recipe.skip_layers),
            page_bytes=cut.page_bytes,
        )
        with suppress(ProfileError):
            made = pool(cut, memory_bytes, max_model_len=max_model_len, in_flight=in_flight)
            first = out[0].pool_tokens if out else made.tokens
            size = replace(
                size,
                pages=made.pages,
                pool_tokens=made.tokens,
                concurrency=made.concurrency,
                against_first=made.tokens / first if first else None,
            )
        out.append(size)
    return tuple(out)


def shard(model: ModelShape, ranks: int) -> ModelShape:
    """Return the part of a model that one of *ranks* tensor-parallel GPUs holds.

    Heads (at least one stays), states and weights are divided; MLA latents are replicated.
    """
    if ranks == 1:
        return model
    groups = tuple(group if group.kind == "mla" else _share(group, ranks) for group in model.groups)
    return replace(
        model,
        groups=groups,
        weight_gib=None if model.weight_gib is None else model.weight_gib / ranks,
    )


def layer_sizes(model: ModelShape, *, block_tokens: int = 16) -> tuple[LayerSize, ...]:
    """Return the size of one layer of each kind."""
    return tuple(
        LayerSize(
            kind=f"{group.kind} {group.window}" if group.window else group.kind,
            layers=group.layers,
            token_bytes=(token_bytes(group, "bf16"), token_bytes(group, "fp8")),
            page_bytes=(_page(group, "bf16", block_tokens), _page(group, "fp8", block_tokens)),
        )
        for group in model.groups
    )


def cautions(model: ModelShape) -> tuple[str, ...]:
    """Return warnings about the model's geometry with an FP8 KV cache."""
    out: list[str] = []
    widest = max(
        (group.head_dim for group in model.groups if group.kind in {"full", "sliding"}), default=0
    )
    if widest > WIDE_HEAD:
        out.append(
            f"heads of {widest}: above {WIDE_HEAD}, FP8 attention uses another kernel on "
            "Hopper; measure BF16 on that kernel too"
        )
    elif widest == WIDE_HEAD:
        out.append(
            f"heads of {widest}: FP8 prefill is slow with two-level accumulation; check "
            "TTFT of long prompts first"
        )
    windows = [group for group in model.groups if group.kind == "sliding"]
    if windows and len(windows) < len(model.groups):
        narrow = min(group.window or 0 for group in windows)
        out.append(
            f"windows of {narrow} tokens: their cache does not grow, so skipping them costs "
            "little speed and some of the pool"
        )
    if any(group.kind == "mamba" for group in model.groups):
        out.append(
            "state layers are not quantised and share the page size, so FP8 gains little "
            "at short contexts (vLLM issue 55196)"
        )
    return tuple(out)


def _share(group: LayerGroup, ranks: int) -> LayerGroup:
    return replace(
        group, kv_heads=max(1, group.kv_heads // ranks), state_bytes=group.state_bytes // ranks
    )


def _page(group: LayerGroup, dtype: KvDtype, block_tokens: int) -> int:
    return group.state_bytes or block_tokens * token_bytes(group, dtype)
