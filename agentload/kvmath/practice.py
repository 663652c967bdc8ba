"""Apply published rules for KV caches to one model, with figures and their present validity.

The rules are the entries of `practice.yaml`; their
sentences hold the names of the figures that are computed here.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
from agentload.model.record import Record

LONG_PREFIX: Final = 10_000
"""Tokens of an agent's system prompt with its tools."""
IMAGE_TOKENS: Final = 1369
"""Of an image of 1024 x 1024 pixels by the 28-pixel patches of the Qwen-VL family."""
Validity: TypeAlias = Literal["holds", "default", "outdated", "wrong"]
"""Holds; holds and is the default; names or flags have changed; never true, or no longer."""
GUIDE: Final = "Rafay Token Factory, KV cache best practices"


class ServedModel(Record):
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


def figures(subject: ServedModel) -> Mapping[str, str | None]:
    """Return what rules come to for a model, by the names in their sentences.

    None for a figure that the model does not have.
    """
    longest = subject.max_model_len
    sizes = subject.sizes
    return {
        "first": subject.first.arm,
        "longest": f"{longest:,}",
        "longest_mb": _megabytes(subject, longest),
        "prefix_mb": _megabytes(subject, LONG_PREFIX),
        "thousand": _by_arm(sizes, lambda each: f"{each.bytes_per_token / 1e3:,.1f} MB"),
        "gib": _gib(subject.gpu),
        "per_gib": _by_arm(
            [each for each in sizes if each.pool_tokens is not None],
            lambda each: f"{(each.pool_tokens or 0) * GIB // subject.memory_bytes:,}",
        ),
        "held": _by_arm(
            [each for each in sizes if each.concurrency is not None],
            lambda each: f"{each.concurrency:.1f}",
        ),
        "gains": _by_arm(
            [each for each in sizes[1:] if each.against_first is not None],
            lambda each: f"{each.against_first:.2f}x",
        ),
        "steps": f"{ceil(longest / subject.batched_tokens)}",
        "batched": f"{subject.batched_tokens:,}",
        "block": f"{subject.block_tokens}",
        "blocks": _blocks(subject),
        "windows": _windows(subject),
        "scaled": f"this config has {subject.scaling}; " if subject.scaling else "",
        "images": _images(subject),
        "kernel": _kernel(subject),
    }


def _by_arm(sizes: Sequence[Size], figure: Callable[[Size], str]) -> str | None:
    return ", ".join(f"{each.arm} {figure(each)}" for each in sizes) or None


def _megabytes(subject: ServedModel, tokens: int) -> str:
    """Return the memory of so many tokens in the reference configuration."""
    return f"{subject.first.bytes_per_token * tokens / 1e6:,.0f} MB at {subject.first.arm}"


def _gib(gpu: Gpu | None) -> str:
    """Name one GiB, as a share of the GPU's memory where the GPU is known."""
    if gpu is None:
        return "one more GiB"
    return f"0.01 more of a {gpu.name} is {gpu.memory_gib / 100:.2f} GiB; one GiB"


def _blocks(subject: ServedModel) -> str:
    """Return the tokens of a block, by configuration where they differ."""
    blocks = {
        recipe.arm: layout(
            subject.shape,
            recipe.dtype,
            skip_layers=recipe.skip_layers,
            block_tokens=subject.block_tokens,
        ).block_tokens
        for recipe in USUAL
        if subject.size(recipe.arm) is not None
    }
    if len(set(blocks.values())) == 1:
        return f"{min(blocks.values())}"
    return ", ".join(f"{arm} {block}" for arm, block in blocks.items())


def _windows(subject: ServedModel) -> str:
    """Say how much of the cache is windows."""
    groups = subject.shape.groups
    windows = [group for group in groups if group.kind == "sliding"]
    if not windows:
        return "this model has no sliding-window layers"
    layers = sum(group.layers for group in windows)
    total = sum(group.layers for group in groups)
    narrow = min(group.window or 0 for group in windows)
    said = f"{layers} of {total} layers keep {narrow:,} tokens"
    skip = subject.size("fp8-skip-sw")
    if skip is None or skip.against_first is None:
        return said
    return f"{said}; windows left at two bytes make the FP8 pool {skip.against_first:.2f}x"


def _images(subject: ServedModel) -> str:
    """Say how much memory an image takes."""
    if not subject.is_multimodal:
        return "the config has no vision or audio part"
    return (
        f"an image of 1024 x 1024 pixels is about {IMAGE_TOKENS:,} tokens, "
        f"{_megabytes(subject, IMAGE_TOKENS)}: count it as text"
    )


def _kernel(subject: ServedModel) -> str:
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


class PublishedRule(Record):
    """A published rule, as it applies to one model."""

    rule: str
    published: str
    source: str
    today: Validity
    because: str
    here: str | None = None
    """What the rule comes to for the model; in RULES, with names of `figures`.

    None if the rule has no figures, or the model lacks one of them.
    """


def advice(subject: ServedModel) -> tuple[PublishedRule, ...]:
    """Apply every rule, in the order of the guide."""
    known = {name: said for name, said in figures(subject).items() if said is not None}
    return tuple(replace(rule, here=_filled(rule.here, known)) for rule in RULES)


def _filled(sentence: str | None, known: Mapping[str, str]) -> str | None:
    """Return a sentence with its figures; None where one of them is not known."""
    if sentence is None:
        return None
    with suppress(KeyError):
        return sentence.format_map(known)
    return None


_TEXT: Final = (
    (files("agentload.kvmath") / "practice.yaml").read_text().replace("{vllm}", f"vLLM {READ}")
)
RULES: Final = msgspec.convert(
    documents.parse(_TEXT, at="practice.yaml"), tuple[PublishedRule, ...]
)
