"""Published rules for KV caches: what each says for one model, and whether it still holds for the vLLM of today.

A rule is an entry of `RULES`: what was published and where, what holds now and by which source, and a function of `applied` that says it in
this model's figures. Text that is wrong today is kept, because people still meet it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agentload.kvmath import applied, vllm
from agentload.kvmath.applied import Subject

Validity: TypeAlias = Literal["holds", "default", "outdated", "wrong"]
"""Holds; holds and is what a server does unasked; names or flags have changed; never was so, or no longer is."""
CURRENT: Final = f"vLLM {vllm.READ}"
GUIDE: Final = "Rafay Token Factory, KV cache best practices"
ARTICLE: Final = "an article on FP8 and prefix caching"


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


RULES: Final = (
    Rule(
        name="memory utilisation",
        published="raise --gpu-memory-utilization until preemptions are rare",
        source=f"{GUIDE}, 1",
        today="holds",
        because=f"{CURRENT} starts at 0.92; --kv-cache-memory-bytes overrides it and keeps pools of arms equal",
        here=applied.memory,
    ),
    Rule(
        name="sequences at once",
        published="tune --max-num-seqs together with the memory",
        source=f"{GUIDE}, 1",
        today="holds",
        because=f"{CURRENT} starts at 256, or 1024 on large GPUs; it bounds the batch, the pool bounds what fits",
        here=applied.sequences,
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
        here=applied.dtype,
    ),
    Rule(
        name="chunked prefill",
        published="enable or verify chunked prefill",
        source=f"{GUIDE}, 3",
        today="default",
        because=f"on in {CURRENT}; --max-num-batched-tokens is the size of a step: 16384 from 160 GB, 8192 from 70, 2048 below and on A100",
        here=applied.steps,
    ),
    Rule(
        name="prefix-friendly prompts",
        published="keep shared prefixes identical and put what changes at the end",
        source=f"{GUIDE}, 4",
        today="holds",
        because=f"and prefix caching is on by default in {CURRENT}; `agentload trace show` finds what breaks a prefix",
        here=applied.prefixes,
    ),
    Rule(
        name="window attention",
        published="prefer models with sliding windows for long sessions",
        source=f"{GUIDE}, 5",
        today="holds",
        because=f"{CURRENT} keeps windows in pages of their own; --kv-cache-dtype-skip-layers sliding_window leaves them at two bytes",
        here=applied.windows,
    ),
    Rule(
        name="RoPE scaling",
        published="--rope-scaling for longer contexts",
        source=f"{GUIDE}, 6",
        today="outdated",
        because=f"the flag is gone from {CURRENT}: --hf-overrides takes the scaling",
        here=applied.context,
    ),
    Rule(
        name="speculative decoding",
        published="--speculative-model with a small draft",
        source=f"{GUIDE}, 7",
        today="outdated",
        because="--speculative-config took its place; FP8 can cost acceptance (0.725 to 0.630, vLLM PR 55557): measure it for each arm",
        here=applied.nothing,
    ),
    Rule(
        name="KV over restarts",
        published="keep hot KV outside the server",
        source=f"{GUIDE}, 8",
        today="holds",
        because=f"{CURRENT} counts it as external_prefix_cache_queries and _hits; agentload samples both",
        here=applied.persisted,
    ),
    Rule(
        name="multimodal tokens",
        published="plan the KV cache with image tokens",
        source=f"{GUIDE}, 9",
        today="holds",
        because="an image's tokens are kept as long as text's, and count in prefix hits by the image's hash",
        here=applied.images,
    ),
    Rule(
        name="backend and dtype",
        published="match the backend to the dtype: FlashAttention-2, XFormers, FlashInfer",
        source=f"{GUIDE}, 10",
        today="outdated",
        because=f"XFormers is gone. {CURRENT} picks another kernel without a warning: the rule itself holds more than ever",
        here=applied.backend,
    ),
    Rule(
        name="dense blocks",
        published="avoid fragmentation of blocks",
        source=f"{GUIDE}, 11",
        today="wrong",
        because="all pages are equally large, so none is too small for anything; what hurts is preemption",
        here=applied.waste,
    ),
    Rule(
        name="scales at run time",
        published="calculate_kv_scales=True measures scales while serving",
        source=ARTICLE,
        today="wrong",
        because=f"removed (vLLM PR 49389): {CURRENT} takes scales from the checkpoint, else 1.0; llm-compressor calibrates them",
        here=applied.nothing,
    ),
    Rule(
        name="memory as proof",
        published="lower memory of the idle GPU shows that FP8 is on",
        source=ARTICLE,
        today="wrong",
        because="the pool is filled up to the utilisation whatever the dtype: compare its tokens, not the GPU's bytes",
        here=applied.nothing,
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
        here=applied.nothing,
    ),
)
