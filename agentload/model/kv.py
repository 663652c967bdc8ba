"""Formats of a KV cache, and the arms that are compared
by default: one table, so that a new one is one row of it.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from agentload.model.record import Record

KvDtype: TypeAlias = Literal[
    "auto", "bf16", "fp16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head", "fp8_ds_mla"
]
"""`auto` is the dtype of the weights: two bytes here. `fp8` is `fp8_e4m3`."""

CALIBRATED_IN: Final = "calibrate"
"""Folder that `agentload calibrate` writes into."""


class Format(Record):
    """How a value of the cache is stored."""

    dtype: KvDtype
    bits: int
    flag: str
    """What `--kv-cache-dtype` calls it."""
    label: str | None = None
    """What a reader calls an arm of this name."""
    scale_bytes: int = 0
    """Of its scales, a head and token."""
    latent_bytes: int | None = None
    """Of one entry a token, where it stores MLA latents only."""


FORMATS: Final[Mapping[KvDtype, Format]] = {
    each.dtype: each
    for each in (
        Format(dtype="auto", bits=16, flag="auto"),
        Format(dtype="bf16", bits=16, flag="bfloat16", label="BF16"),
        Format(dtype="fp16", bits=16, flag="float16", label="FP16"),
        Format(dtype="fp8", bits=8, flag="fp8", label="FP8"),
        Format(dtype="fp8_e4m3", bits=8, flag="fp8_e4m3"),
        Format(dtype="fp8_e5m2", bits=8, flag="fp8_e5m2"),
        Format(
            dtype="fp8_per_token_head", bits=8, flag="fp8_per_token_head", scale_bytes=8
        ),  # two float32
        Format(
            dtype="fp8_ds_mla", bits=8, flag="fp8_ds_mla", latent_bytes=656
        ),  # 512 FP8 values, their scales, 64 rotary ones in BF16
    )
}


class Recipe(Record):
    """One arm of a comparison: its cache, what it is for, what its server must then say."""

    arm: str
    dtype: KvDtype
    why: str
    label: str | None = None
    skip_layers: tuple[str, ...] = ()
    """Layers that stay at two bytes; windows are skipped only where the model has some."""
    backend: str | None = None
    """The attention kernel that it is held to."""
    more: tuple[str, ...] = ()
    """Further flags and their values, in turn."""
    is_usual: bool = False
    """Compared where nothing else is asked for."""
    is_calibrated: bool = False
    """Served from weights with scales, which `agentload calibrate` makes first."""

    @property
    def needs_windows(self) -> bool:
        """Say whether it is for models with sliding-window layers alone."""
        return "sliding_window" in self.skip_layers

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags that make it."""
        skipped = ("--kv-cache-dtype-skip-layers", *self.skip_layers) if self.skip_layers else ()
        kernel = () if self.backend is None else ("--attention-backend", self.backend)
        return ("--kv-cache-dtype", FORMATS[self.dtype].flag, *skipped, *kernel, *self.more)

    @property
    def expect(self) -> Mapping[str, object]:
        """Return what its server must say of itself."""
        skipped = {"skip_layers": list(self.skip_layers)} if self.skip_layers else {}
        kernel = {} if self.backend is None else {"backend": self.backend}
        return {
            "kv_cache_dtype": FORMATS[self.dtype].flag,
            **skipped,
            **kernel,
            "prefix_caching": True,
        }


RECIPES: Final = (
    Recipe(
        arm="bf16",
        dtype="bf16",
        is_usual=True,
        why="The reference. Named, because 'auto' becomes FP8 where the checkpoint brings a "
        "KV-cache scheme.",
    ),
    Recipe(
        arm="fp8",
        dtype="fp8",
        is_usual=True,
        why="FP8 (e4m3) for all layers. Scales come from the checkpoint, else they are 1.0: "
        "then test accuracy at your own lengths.",
    ),
    Recipe(
        arm="fp8-skip-sw",
        dtype="fp8",
        label="FP8 skip-SW",
        skip_layers=("sliding_window",),
        is_usual=True,
        why="FP8 where the cache grows, two bytes in the windows. Only for models with "
        "sliding-window layers.",
    ),
    Recipe(
        arm="fp8-calibrated",
        dtype="fp8",
        label="FP8 calibrated",
        is_calibrated=True,
        why="FP8 with scales measured on prompts of your own. Its weights are made first, by "
        "llm-compressor: "
        f"agentload calibrate TRACE --model MODEL && (cd {CALIBRATED_IN} && python calibrate.py)",
    ),
    Recipe(
        arm="bf16-same-backend",
        dtype="bf16",
        backend="FLASHINFER",
        why="BF16 on the kernel that FP8 gets where it switches (SM80, 86, 89, 120): tells the "
        "dtype's effect from the kernel's. "
        "Put in the backend of the fp8 server's log.",
    ),
)
OFFLOAD_GIB: Final = 64
DRAFTS: Final = (
    "--speculative-config",
    '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}',
)
FURTHER: Final = (
    Recipe(
        arm="fp8-e5m2",
        dtype="fp8_e5m2",
        label="FP8 e5m2",
        why="FP8 with a wider range and fewer digits, and no scales. On Hopper it leaves FA3 for "
        "FLASHINFER: compare it with bf16-same-backend.",
    ),
    Recipe(
        arm="bf16-drafts",
        dtype="bf16",
        label="BF16, drafts",
        more=DRAFTS,
        why="Four tokens a step are drafted from the prompt and checked. Its gain is the share "
        "that is accepted, which a report has.",
    ),
    Recipe(
        arm="fp8-drafts",
        dtype="fp8",
        label="FP8, drafts",
        more=DRAFTS,
        why="The same on an FP8 cache, which can cost accepted drafts: measure both.",
    ),
    Recipe(
        arm="bf16-offload",
        dtype="bf16",
        label="BF16, offload",
        more=("--kv-offloading-size", str(OFFLOAD_GIB)),
        why=f"Blocks are copied to {OFFLOAD_GIB} GiB of the machine's memory, and read from there "
        "once the pool has lost them.",
    ),
    Recipe(
        arm="fp8-offload",
        dtype="fp8",
        label="FP8, offload",
        more=("--kv-offloading-size", str(OFFLOAD_GIB)),
        why="The same on an FP8 cache, whose blocks take half of the memory and of the transfer.",
    ),
    Recipe(
        arm="fp8-weights",
        dtype="bf16",
        label="FP8 weights",
        more=("--quantization", "fp8"),
        why="Weights in FP8, the cache at two bytes: tells what the weights gain from what the "
        "cache does.",
    ),
    Recipe(
        arm="fp8-weights-fp8-kv",
        dtype="fp8",
        label="FP8 weights and KV",
        more=("--quantization", "fp8"),
        why="Weights and cache in FP8.",
    ),
)
"""Arms that are made where they are named, and never by themselves."""
WELL_KNOWN: Final = {recipe.arm: recipe for recipe in (*RECIPES, *FURTHER)}
NAMED: Final[Mapping[str, str]] = {
    **{each.dtype: each.flag for each in FORMATS.values() if each.dtype != "auto"},
    **{name: FORMATS[each.dtype].flag for name, each in WELL_KNOWN.items()},
}
"""What `--kv-cache-dtype` an arm has by its name alone."""
USUAL: Final = tuple(recipe for recipe in RECIPES if recipe.is_usual)
LABELS: Final[Mapping[str, str]] = {
    **{each.dtype: each.label for each in FORMATS.values() if each.label is not None},
    **{name: each.label for name, each in WELL_KNOWN.items() if each.label is not None},
    "nvfp4": "NVFP4",
}
"""Arms as people write them, by name; that of a format is its dtype's."""
