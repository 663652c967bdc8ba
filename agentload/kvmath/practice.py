"""Published rules for KV caches: what each says for one model, and whether it still holds for the vLLM of today.

A rule is an entry of `RULES`: what was published and where, what holds now and by which source, and a function that says it in this model's
figures. Text that is wrong today is kept, because people still meet it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, TypeAlias

from agentload.kvmath.compare import Size
from agentload.kvmath.layout import layout
from agentload.kvmath.pool import GIB
from agentload.model.profile import Gpu, ModelShape

Validity: TypeAlias = Literal["holds", "default", "outdated", "wrong"]
"""Holds; holds and is what a server does unasked; names or flags have changed; never was so, or no longer is."""
CURRENT: Final = "vLLM 0.33.0"
GUIDE: Final = "Rafay Token Factory, KV cache best practices"
ARTICLE: Final = "an article on FP8 and prefix caching"
LONG_PREFIX: Final = 10_000
"""Tokens of an agent's system prompt with its tools."""
IMAGE_TOKENS: Final = 1369
"""Of an image of 1024 x 1024 pixels by the 28-pixel patches of the Qwen-VL family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The model and the servers that rules are applied to."""

    shape: ModelShape
    sizes: tuple[Size, ...]
    memory_bytes: int
    """Of the pool on one GPU."""
    max_model_len: int
    batched_tokens: int
    block_tokens: int
    gpu: Gpu | None = None
    is_multimodal: bool = False

    @property
    def first(self) -> Size:
        """Return the configuration that the others are held against."""
        return self.sizes[0]

    def size(self, arm: str) -> Size | None:
        """Return what one configuration takes; None where it makes no sense for the model."""
        return next((each for each in self.sizes if each.arm == arm), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One published rule."""

    name: str
    published: str
    source: str
    today: Validity
    because: str
    """What holds now, and by which source."""
    here: Callable[[Subject], str | None]
    """What it comes to for a model; None where it has nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A rule as it applies to one model."""

    rule: str
    published: str
    source: str
    today: Validity
    because: str
    here: str | None


def advice(subject: Subject) -> tuple[Advice, ...]:
    """Apply every rule, in the order of the guide."""
    return tuple(
        Advice(
            rule=rule.name,
            published=rule.published,
            source=rule.source,
            today=rule.today,
            because=rule.because,
            here=rule.here(subject),
        )
        for rule in RULES
    )


def _memory(subject: Subject) -> str | None:
    per_gib = ", ".join(
        f"{each.arm} {each.pool_tokens * GIB // subject.memory_bytes:,}" for each in subject.sizes if each.pool_tokens is not None
    )
    if not per_gib:
        return None
    if subject.gpu is None:
        return f"a GiB more holds so many tokens: {per_gib}"
    return f"0.01 more of a {subject.gpu.name} is {subject.gpu.memory_gib / 100:.2f} GiB; a GiB holds so many tokens: {per_gib}"


def _sequences(subject: Subject) -> str | None:
    held = ", ".join(f"{each.arm} {each.concurrency:.1f}" for each in subject.sizes if each.concurrency is not None)
    if not held:
        return None
    return f"requests of {subject.max_model_len:,} tokens that fit at once: {held}; beyond that, longer contexts preempt each other"


def _dtype(subject: Subject) -> str | None:
    gains = ", ".join(f"{each.arm} {each.against_first:.2f}x" for each in subject.sizes[1:] if each.against_first is not None)
    return f"the pool holds, against {subject.first.arm}: {gains}" if gains else None


def _chunks(subject: Subject) -> str:
    chunks = ceil(subject.max_model_len / subject.batched_tokens)
    return f"a prompt of {subject.max_model_len:,} tokens takes {chunks} steps of {subject.batched_tokens:,}, with decodes between them"


def _prefixes(subject: Subject) -> str:
    blocks = {}
    for each in subject.sizes:
        skip = ("sliding_window",) if each.arm == "fp8-skip-sw" else ()
        cut = layout(subject.shape, "bf16" if each.arm == "bf16" else "fp8", skip_layers=skip, block_tokens=subject.block_tokens)
        blocks[each.arm] = cut.block_tokens
    told = f"{min(blocks.values())}" if len(set(blocks.values())) == 1 else ", ".join(f"{arm} {block}" for arm, block in blocks.items())
    return f"reuse comes in whole blocks ({told} tokens): one token that changes early costs all after it"


def _windows(subject: Subject) -> str | None:
    windows = [group for group in subject.shape.groups if group.kind == "sliding"]
    if not windows:
        return "this model has no window layers"
    layers, total = sum(group.layers for group in windows), sum(group.layers for group in subject.shape.groups)
    skip = subject.size("fp8-skip-sw")
    gain = "" if skip is None or skip.against_first is None else f"; windows left at two bytes make the FP8 pool {skip.against_first:.2f}x"
    return f"{layers} of {total} layers keep {min(group.window or 0 for group in windows):,} tokens{gain}"


def _context(subject: Subject) -> str:
    megabytes = subject.first.bytes_per_token * subject.max_model_len / 1e6
    return f"a request of {subject.max_model_len:,} tokens takes {megabytes:,.0f} MB at {subject.first.arm}, scaled positions or not"


def _persisted(subject: Subject) -> str:
    megabytes = subject.first.bytes_per_token * LONG_PREFIX / 1e6
    return f"a prefix of {LONG_PREFIX:,} tokens is {megabytes:,.0f} MB at {subject.first.arm}: computed again, or sent by a store"


def _images(subject: Subject) -> str | None:
    if not subject.is_multimodal:
        return "the config has no vision or audio part"
    megabytes = subject.first.bytes_per_token * IMAGE_TOKENS / 1e6
    return f"an image of 1024 x 1024 pixels is about {IMAGE_TOKENS:,} tokens, {megabytes:,.0f} MB at {subject.first.arm}: count it as text"


def _backend(subject: Subject) -> str:
    widest = max((group.head_dim for group in subject.shape.groups if group.kind in {"full", "sliding"}), default=0)
    is_mla = any(group.kind == "mla" for group in subject.shape.groups)
    sm = subject.gpu.compute_capability if subject.gpu is not None else None
    match sm:
        case None:
            return "name the GPU (--gpu) to see which kernel FP8 takes"
        case 90 if is_mla:
            return "FP8 leaves FLASH_ATTN_MLA for FLASHMLA: measure BF16 on FLASHMLA too"
        case 90 if widest <= 256:
            wide = "; heads of 256 decode no faster in FP8 there" if widest == 256 else ""
            return f"fp8_e4m3 stays on FLASH_ATTN (FA3); fp8_e5m2 leaves it for FLASHINFER{wide}"
        case 90:
            return f"heads of {widest} leave FA3: read the kernel from the log, and measure BF16 on it too"
        case 100:
            return "FLASHINFER (TRT-LLM) serves both dtypes"
        case 80 | 86 | 89 | 120:
            return "FLASH_ATTN (FA2) refuses FP8 and FLASHINFER takes over: measure BF16 with --attention-backend FLASHINFER too"
        case _:
            return "read the kernel of both dtypes from the log before you credit the dtype"


def _waste(subject: Subject) -> str:
    return f"a request wastes less than one block of {subject.block_tokens} tokens a table; pages cannot fragment"


def _nothing(_: Subject) -> str | None:
    return None


RULES: Final = (
    Rule(
        name="memory utilisation",
        published="raise --gpu-memory-utilization until preemptions are rare",
        source=f"{GUIDE}, 1",
        today="holds",
        because=f"{CURRENT} starts at 0.92; --kv-cache-memory-bytes overrides it and keeps pools of arms equal",
        here=_memory,
    ),
    Rule(
        name="sequences at once",
        published="tune --max-num-seqs together with the memory",
        source=f"{GUIDE}, 1",
        today="holds",
        because=f"{CURRENT} starts at 256, or 1024 on large GPUs; it bounds the batch, the pool bounds what fits",
        here=_sequences,
    ),
    Rule(
        name="FP8 dtypes",
        published="fp8, fp8_e4m3 or fp8_e5m2 on Hopper, Ada, MI300; zero gains on Ampere",
        source=f"{GUIDE}, 2",
        today="wrong",
        because=(
            "FlashAttention takes e4m3 alone: e5m2 moves Hopper off FA3. "
            "On an A100 the pool doubled too and decode gained a little (vLLM issue 42058)"
        ),
        here=_dtype,
    ),
    Rule(
        name="chunked prefill",
        published="enable or verify chunked prefill",
        source=f"{GUIDE}, 3",
        today="default",
        because=f"on in {CURRENT}; --max-num-batched-tokens is the size of a step: 16384 from 160 GB, 8192 from 70 GB, else 2048",
        here=_chunks,
    ),
    Rule(
        name="prefix-friendly prompts",
        published="keep shared prefixes identical and put what changes at the end",
        source=f"{GUIDE}, 4",
        today="holds",
        because=f"and prefix caching is on by default in {CURRENT}; `agentload trace show` finds what breaks a prefix",
        here=_prefixes,
    ),
    Rule(
        name="window attention",
        published="prefer models with sliding windows for long sessions",
        source=f"{GUIDE}, 5",
        today="holds",
        because=f"{CURRENT} keeps windows in pages of their own; --kv-cache-dtype-skip-layers sliding_window leaves them at two bytes",
        here=_windows,
    ),
    Rule(
        name="RoPE scaling",
        published="--rope-scaling for longer contexts",
        source=f"{GUIDE}, 6",
        today="outdated",
        because=f"the flag is gone from {CURRENT}: --hf-overrides takes the scaling",
        here=_context,
    ),
    Rule(
        name="speculative decoding",
        published="--speculative-model with a small draft",
        source=f"{GUIDE}, 7",
        today="outdated",
        because="--speculative-config took its place; FP8 can cost acceptance (0.725 to 0.630, vLLM PR 55557): measure it for each arm",
        here=_nothing,
    ),
    Rule(
        name="KV over restarts",
        published="keep hot KV outside the server",
        source=f"{GUIDE}, 8",
        today="holds",
        because=f"{CURRENT} counts it as external_prefix_cache_queries and _hits; agentload samples both",
        here=_persisted,
    ),
    Rule(
        name="multimodal tokens",
        published="plan the KV cache with image tokens",
        source=f"{GUIDE}, 9",
        today="holds",
        because="an image's tokens are kept as long as text's, and count in prefix hits by the image's hash",
        here=_images,
    ),
    Rule(
        name="backend and dtype",
        published="match the backend to the dtype: FlashAttention-2, XFormers, FlashInfer",
        source=f"{GUIDE}, 10",
        today="outdated",
        because=f"XFormers is gone. {CURRENT} picks another kernel without a warning: the rule itself holds more than ever",
        here=_backend,
    ),
    Rule(
        name="dense blocks",
        published="avoid fragmentation of blocks",
        source=f"{GUIDE}, 11",
        today="wrong",
        because="all pages are equally large, so none is too small for anything; what hurts is preemption",
        here=_waste,
    ),
    Rule(
        name="scales at run time",
        published="calculate_kv_scales=True measures scales while serving",
        source=ARTICLE,
        today="wrong",
        because=f"removed (vLLM PR 49389): {CURRENT} takes scales from the checkpoint, else 1.0; llm-compressor calibrates them",
        here=_nothing,
    ),
    Rule(
        name="memory as proof",
        published="lower memory of the idle GPU shows that FP8 is on",
        source=ARTICLE,
        today="wrong",
        because="the pool is filled up to the utilisation whatever the dtype: compare its tokens, not the GPU's bytes",
        here=_nothing,
    ),
    Rule(
        name="no silent fallback",
        published="vLLM never changes dtype or kernel silently",
        source=ARTICLE,
        today="wrong",
        because=(
            "another backend is one INFO line, and checkpoints can turn FP8 on under `auto` (vLLM issues 56992, 44879): "
            "`agentload endpoints check` reads both"
        ),
        here=_nothing,
    ),
)
