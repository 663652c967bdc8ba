"""The commands that start each arm of a KV-cache comparison with vLLM, pinned and explained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.kvmath.vllm import READ, TRIED

FIRST_PORT: Final = 8000
COMMON: Final = ("--enable-prompt-tokens-details",)
"""Tells the cached tokens of each call; off by default."""
CALIBRATED_IN: Final = "calibrate"
"""Folder that `agentload calibrate` writes into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One arm: its flags, what it is for, what the server must then say."""

    arm: str
    flags: tuple[str, ...]
    why: str
    expect: Mapping[str, object] = field(default_factory=dict)
    needs_windows: bool = False
    """Only for models with sliding-window layers."""
    is_calibrated: bool = False
    """Served from weights with scales, which `agentload calibrate` makes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is held equal on all arms, because pool and answers depend on it. None: what vLLM takes by itself."""

    max_model_len: int | None = None
    batched_tokens: int | None = None
    kv_memory: str | None = None
    revision: str | None = None
    """Of the model's own weights."""

    def words(self, *, is_calibrated: bool) -> tuple[str, ...]:
        """Return them as words of a command line."""
        said = {
            "--revision": None if is_calibrated else self.revision,
            "--max-model-len": self.max_model_len,
            "--max-num-batched-tokens": self.batched_tokens,
            "--kv-cache-memory-bytes": self.kv_memory,
        }
        return tuple(word for flag, value in said.items() if value is not None for word in (flag, str(value)))


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
        arm="fp8-calibrated",
        flags=("--kv-cache-dtype", "fp8"),
        why="FP8 with scales measured on prompts of your own. Its weights are made first, by llm-compressor: "
        f"agentload calibrate TRACE --model MODEL && (cd {CALIBRATED_IN} && python calibrate.py)",
        expect={"kv_cache_dtype": "fp8", "prefix_caching": True},
        is_calibrated=True,
    ),
    Recipe(
        arm="bf16-same-backend",
        flags=("--kv-cache-dtype", "bfloat16", "--attention-backend", "FLASHINFER"),
        why="BF16 on the kernel that FP8 gets where it switches (SM80, 86, 89, 120): tells the dtype's effect from the kernel's. "
        "Put in the backend of the fp8 server's log.",
        expect={"kv_cache_dtype": "bfloat16", "backend": "FLASHINFER", "prefix_caching": True},
    ),
)


def planned(model: str, *, has_windows: bool | None = None, vllm: str = "vllm", pins: Pins | None = None) -> tuple[Endpoint, ...]:
    """Return an arm for each recipe that fits the model, on ports of their own; windows that are not known are offered."""
    fitting = [recipe for recipe in RECIPES if has_windows is not False or not recipe.needs_windows]
    return tuple(_arm(recipe, model, FIRST_PORT + position, vllm, pins or Pins()) for position, recipe in enumerate(fitting))


def explained(arms: Sequence[Endpoint]) -> str:
    """Return a shell script: each arm's command below what it is for."""
    lines = [
        f"# Tried with vLLM {TRIED} (its sources were read up to {READ}): pip install vllm=={TRIED}",
        "# Start one arm at a time on one GPU, or each on a GPU of its own (CUDA_VISIBLE_DEVICES).",
        "# Hold equal what is not compared: version, weights (--revision), --max-model-len, --max-num-batched-tokens, and the pool's bytes",
        "# (--kv-cache-memory-bytes; without it the pool is what --gpu-memory-utilization leaves).",
        "# /server_info and POST /reset_prefix_cache need VLLM_SERVER_DEV_MODE=1; not for servers that others reach.",
    ]
    for arm in arms:
        lines += ["", f"# {arm.name}: {why(arm) or 'as the arms file says.'}"]
        if arm.launch is None:
            lines.append(f"# started elsewhere: {arm.shown_url}")
            continue
        env = [f"{name}={shlex.quote(value)}" for name, value in arm.launch.env.items()]
        lines.append(" ".join([*env, shlex.join(arm.launch.command)]))
    return "\n".join(lines) + "\n"


def why(arm: Endpoint) -> str | None:
    """Say what an arm of a recipe is for; None for any other."""
    said = next((recipe.why for recipe in RECIPES if recipe.arm == arm.name), None)
    return said if said is None or arm.model is None else said.replace("--model MODEL", f"--model {shlex.quote(arm.model)}")


def calibrated_name(model: str, strategy: str = "tensor") -> str:
    """Name the folder of a model's weights with scales for its KV cache."""
    return f"{model.rstrip('/').rpartition('/')[2]}-fp8-kv-{strategy.replace('_', '-')}"


def _arm(recipe: Recipe, model: str, port: int, vllm: str, pins: Pins) -> Endpoint:
    weights = f"./{CALIBRATED_IN}/{calibrated_name(model)}" if recipe.is_calibrated else model
    told = ("--served-model-name", model) if weights != model else ()
    pinned = pins.words(is_calibrated=recipe.is_calibrated)
    command = (vllm, "serve", weights, "--port", str(port), *told, *pinned, *recipe.flags, *COMMON)
    length = {} if pins.max_model_len is None else {"max_model_len": pins.max_model_len}
    return Endpoint(
        name=recipe.arm,
        url=f"http://127.0.0.1:{port}/v1",
        model=model,
        expect={**recipe.expect, **length},
        launch=Launch(command=command),
    )
