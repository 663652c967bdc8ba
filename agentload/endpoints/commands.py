"""The commands that start each arm of a KV-cache comparison with vLLM, pinned and explained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentload.endpoints.endpoint import Endpoint, Launch

FIRST_PORT: Final = 8000
COMMON: Final = ("--enable-prompt-tokens-details",)
"""Tells the cached tokens of each call; off by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One arm: its flags, what it is for, what the server must then say."""

    arm: str
    flags: tuple[str, ...]
    why: str
    expect: Mapping[str, object] = field(default_factory=dict)
    needs_windows: bool = False
    """Only for models with sliding-window layers."""


RECIPES: Final = (
    Recipe(
        arm="bf16",
        flags=("--kv-cache-dtype", "bfloat16"),
        why="The reference. Named, because 'auto' becomes FP8 where the checkpoint brings a KV-cache scheme.",
        expect={"kv_cache_dtype": "bfloat16", "prefix_caching": True},
    ),
    Recipe(
        arm="fp8",
        flags=("--kv-cache-dtype", "fp8"),
        why="FP8 (e4m3) for all layers. Scales come from the checkpoint, else they are 1.0: then test accuracy at your own lengths.",
        expect={"kv_cache_dtype": "fp8", "prefix_caching": True},
    ),
    Recipe(
        arm="fp8-skip-sw",
        flags=("--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "sliding_window"),
        why="FP8 where the cache grows, two bytes in the windows. Only for models with sliding-window layers.",
        expect={"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"], "prefix_caching": True},
        needs_windows=True,
    ),
    Recipe(
        arm="bf16-same-backend",
        flags=("--kv-cache-dtype", "bfloat16", "--attention-backend", "FLASHINFER"),
        why="BF16 on the kernel that FP8 gets where it switches (SM80, 86, 89, 120): tells the dtype's effect from the kernel's. "
        "Put in the backend of the fp8 server's log.",
        expect={"kv_cache_dtype": "bfloat16", "backend": "FLASHINFER", "prefix_caching": True},
    ),
)


def planned(model: str, *, has_windows: bool | None = None, vllm: str = "vllm", length: int | None = None) -> tuple[Endpoint, ...]:
    """Return an arm for each recipe that fits the model, on ports of their own; windows that are not known are offered."""
    fitting = [recipe for recipe in RECIPES if has_windows is not False or not recipe.needs_windows]
    return tuple(_arm(recipe, model, FIRST_PORT + position, vllm, length) for position, recipe in enumerate(fitting))


def explained(arms: Sequence[Endpoint]) -> str:
    """Return a shell script: each arm's command below what it is for."""
    whys = {recipe.arm: recipe.why for recipe in RECIPES}
    lines = [
        "# Start one arm at a time on one GPU, or each on a GPU of its own (CUDA_VISIBLE_DEVICES).",
        "# Hold equal what is not compared: version, --max-model-len, --max-num-batched-tokens, and the pool's bytes",
        "# (--kv-cache-memory-bytes; without it the pool is what --gpu-memory-utilization leaves).",
        "# /server_info and POST /reset_prefix_cache need VLLM_SERVER_DEV_MODE=1; not for servers that others reach.",
    ]
    for arm in arms:
        lines += ["", f"# {arm.name}: {whys.get(arm.name, 'as the arms file says.')}"]
        if arm.launch is None:
            lines.append(f"# started elsewhere: {arm.shown_url}")
            continue
        env = [f"{name}={shlex.quote(value)}" for name, value in arm.launch.env.items()]
        lines.append(" ".join([*env, shlex.join(arm.launch.command)]))
    return "\n".join(lines) + "\n"


def _arm(recipe: Recipe, model: str, port: int, vllm: str, length: int | None) -> Endpoint:
    pinned = () if length is None else ("--max-model-len", str(length))
    command = (vllm, "serve", model, "--port", str(port), *pinned, *recipe.flags, *COMMON)
    return Endpoint(
        name=recipe.arm,
        url=f"http://127.0.0.1:{port}/v1",
        model=model,
        expect=dict(recipe.expect) | ({} if length is None else {"max_model_len": length}),
        launch=Launch(command=command),
    )
