"""Apply published rules for KV caches to one model, with figures and their present validity.

The rules are the entries of `practice.yaml`; each
names the function here that computes its figures.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil
from typing import Final, Literal, TypeAlias

import msgspec

from agentload import documents
from agentload.kvmath.compare import Size
from agentload.kvmath.layout import layout
from agentload.kvmath.pool import GIB, READ
from agentload.model.kv import USUAL
from agentload.model.profile import Gpu, ModelShape

LONG_PREFIX: Final = 10_000
"""Tokens of an agent's system prompt with its tools."""
IMAGE_TOKENS: Final = 1369
"""Of an image of 1024 x 1024 pixels by the 28-pixel patches of the Qwen-VL family."""
Validity: TypeAlias = Literal["holds", "default", "outdated", "wrong"]
"""Holds; holds and is the default; names or flags have changed; never true, or no longer."""
GUIDE: Final = "Rafay Token Factory, KV cache best practices"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model and its servers."""

    shape: ModelShape
    sizes: tuple[Size, ...]
    memory_bytes: int
    """Memory of the pool on one GPU."""
    max_model_len: int
    batched_tokens: int
    block_tokens: int
    gpu: Gpu | None = None
    is_multimodal: bool = False
    scaling: str | None = None
    """How its config scales positions, in words; None: it does not, or there is no config."""

    @property
    def first(self) -> Size:
        """Reference configuration, the first."""
        return self.sizes[0]

    def size(self, arm: str) -> Size | None:
        """Return the size of one configuration; None if the model does not support it."""
        return next((each for each in self.sizes if each.arm == arm), None)


def memory(subject: ServedModel) -> str | None:
    """Say what one more GiB holds."""
    per_gib = ", ".join(
        f"{each.arm} {each.pool_tokens * GIB // subject.memory_bytes:,}"
        for each in subject.sizes
        if each.pool_tokens is not None
    )
    if not per_gib:
        return None
    if subject.gpu is None:
        return f"one more GiB holds this many tokens: {per_gib}"
    return (
        f"0.01 more of a {subject.gpu.name} is {subject.gpu.memory_gib / 100:.2f} GiB; one GiB "
        f"holds this many tokens: {per_gib}"
    )


def sequences(subject: ServedModel) -> str | None:
    """Say how many of the longest requests fit."""
    held = ", ".join(
        f"{each.arm} {each.concurrency:.1f}"
        for each in subject.sizes
        if each.concurrency is not None
    )
    if not held:
        return None
    return (
        f"concurrent requests of {subject.max_model_len:,} tokens that fit: {held}; beyond that "
        "they preempt each other"
    )


def dtype(subject: ServedModel) -> str | None:
    """Say how much more FP8 pools hold."""
    gains = ", ".join(
        f"{each.arm} {each.against_first:.2f}x"
        for each in subject.sizes[1:]
        if each.against_first is not None
    )
    return f"pool compared with {subject.first.arm}: {gains}" if gains else None


def steps(subject: ServedModel) -> str:
    """Say how many prefill steps the longest prompt takes."""
    taken = ceil(subject.max_model_len / subject.batched_tokens)
    return (
        f"a prompt of {subject.max_model_len:,} tokens takes {taken} steps of "
        f"{subject.batched_tokens:,}, interleaved with decodes"
    )


def prefixes(subject: ServedModel) -> str:
    """Say at which granularity prefixes are reused."""
    blocks = {}
    for each in (recipe for recipe in USUAL if subject.size(recipe.arm) is not None):
        cut = layout(
            subject.shape,
            each.dtype,
            skip_layers=each.skip_layers,
            block_tokens=subject.block_tokens,
        )
        blocks[each.arm] = cut.block_tokens
    told = (
        f"{min(blocks.values())}"
        if len(set(blocks.values())) == 1
        else ", ".join(f"{arm} {block}" for arm, block in blocks.items())
    )
    return (
        f"reuse is in whole blocks ({told} tokens): a change in an early token costs everything "
        "after it"
    )


def windows(subject: ServedModel) -> str | None:
    """Say how much of the cache is windows."""
    windows = [group for group in subject.shape.groups if group.kind == "sliding"]
    if not windows:
        return "this model has no sliding-window layers"
    layers, total = (
        sum(group.layers for group in windows),
        sum(group.layers for group in subject.shape.groups),
    )
    skip = subject.size("fp8-skip-sw")
    gain = (
        ""
        if skip is None or skip.against_first is None
        else f"; windows left at two bytes make the FP8 pool {skip.against_first:.2f}x"
    )
    return (
        f"{layers} of {total} layers keep {min(group.window or 0 for group in windows):,} "
        f"tokens{gain}"
    )


def context(subject: ServedModel) -> str:
    """Say how much memory the longest request takes."""
    megabytes = subject.first.bytes_per_token * subject.max_model_len / 1e6
    scaled = "" if subject.scaling is None else f"this config has {subject.scaling}; "
    return (
        f"{scaled}a request of {subject.max_model_len:,} tokens takes {megabytes:,.0f} MB at "
        f"{subject.first.arm}, even with RoPE scaling"
    )


def thousand(subject: ServedModel) -> str:
    """Say how much memory a thousand tokens take."""
    taken = ", ".join(f"{each.arm} {each.bytes_per_token / 1e3:,.1f} MB" for each in subject.sizes)
    return f"1,000 tokens take {taken}"


def prefix_storage(subject: ServedModel) -> str:
    """Say how much memory a long prefix takes."""
    megabytes = subject.first.bytes_per_token * LONG_PREFIX / 1e6
    return (
        f"a prefix of {LONG_PREFIX:,} tokens is {megabytes:,.0f} MB at {subject.first.arm}, to "
        "recompute, or to fetch from a store"
    )


def images(subject: ServedModel) -> str | None:
    """Say how much memory an image takes."""
    if not subject.is_multimodal:
        return "the config has no vision or audio part"
    megabytes = subject.first.bytes_per_token * IMAGE_TOKENS / 1e6
    return (
        f"an image of 1024 x 1024 pixels is about {IMAGE_TOKENS:,} tokens, {megabytes:,.0f} MB "
        f"at {subject.first.arm}: count it as text"
    )


def backend(subject: ServedModel) -> str:
    """Say which attention kernel FP8 uses on the GPU."""
    widest = max(
        (group.head_dim for group in subject.shape.groups if group.kind in {"full", "sliding"}),
        default=0,
    )
    is_mla = any(group.kind == "mla" for group in subject.shape.groups)
    sm = subject.gpu.compute_capability if subject.gpu is not None else None
    match sm:
        case None:
            return "name the GPU (--gpu) to see which kernel FP8 uses"
        case 90 if is_mla:
            return "FP8 switches from FLASH_ATTN_MLA to FLASHMLA: measure BF16 on FLASHMLA too"
        case 90 if widest <= 256:
            wide = "; heads of 256 decode no faster in FP8 there" if widest == 256 else ""
            return f"fp8_e4m3 stays on FLASH_ATTN (FA3); fp8_e5m2 switches to FLASHINFER{wide}"
        case 90:
            return (
                f"heads of {widest} are not supported by FA3: read the kernel from the log, and "
                "measure BF16 on it too"
            )
        case 100:
            return "FLASHINFER (TRT-LLM) serves both dtypes"
        case 80 | 86 | 89 | 120:
            return (
                "FLASH_ATTN (FA2) refuses FP8, so FLASHINFER is used: measure BF16 with "
                "--attention-backend FLASHINFER too"
            )
        case _:
            return "read the kernels of both dtypes from the log before you credit the dtype"


def waste(subject: ServedModel) -> str:
    """Say how much memory a request wastes."""
    return (
        f"a request wastes less than one block of {subject.block_tokens} tokens per table; "
        "pages cannot fragment"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRule:
    """A published rule, as it applies to one model."""

    rule: str
    published: str
    source: str
    today: Validity
    because: str
    here: str | None = None
    """The model's figures; in RULES, the name of the function here that computes them.

    None if the rule has no figures.
    """


def advice(subject: ServedModel) -> tuple[PublishedRule, ...]:
    """Apply every rule, in the order of the guide."""
    return tuple(
        rule if rule.here is None else replace(rule, here=_FIGURES[rule.here](subject))
        for rule in RULES
    )


_FIGURES: Final[Mapping[str, Callable[[ServedModel], str | None]]] = {
    each.__name__: each
    for each in (
        memory,
        sequences,
        dtype,
        steps,
        prefixes,
        windows,
        context,
        prefix_storage,
        thousand,
        images,
        backend,
        waste,
    )
}
_TEXT: Final = (
    (files("agentload.kvmath") / "practice.yaml").read_text().replace("{vllm}", f"vLLM {READ}")
)
RULES: Final = msgspec.convert(
    documents.parse(_TEXT, at="practice.yaml"), tuple[PublishedRule, ...]
)
