"""Write the commands that start each arm of a vLLM KV-cache comparison, pinned and explained.

A model's config is looked for on this machine only.
"""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import ProfileError, UsageError
from agentload.kvmath.config import model_shape
from agentload.kvmath.pool import READ, TRIED
from agentload.model.kv import CALIBRATED_IN, RECIPES, WELL_KNOWN, Recipe
from agentload.model.record import Record

FIRST_PORT: Final = 8000
COMMON: Final = ("--enable-prompt-tokens-details",)
"""Makes vLLM report the cached tokens of each call; off by default."""


class Pins(Record):
    """Settings that are equal on all arms, because pool and answers depend on them.

    None leaves vLLM's default.
    """

    max_model_len: int | None = None
    batched_tokens: int | None = None
    kv_memory: str | None = None
    revision: str | None = None
    """Revision of the model's own weights; calibrated weights have none."""

    def words(self, *, is_calibrated: bool) -> tuple[str, ...]:
        """Return the pins as words of a command line."""
        said = {
            "--revision": None if is_calibrated else self.revision,
            "--max-model-len": self.max_model_len,
            "--max-num-batched-tokens": self.batched_tokens,
            "--kv-cache-memory-bytes": self.kv_memory,
        }
        return tuple(
            word for flag, value in said.items() if value is not None for word in (flag, str(value))
        )


def launch_plan(
    model: str,
    *,
    has_windows: bool | None = None,
    vllm: str = "vllm",
    pins: Pins | None = None,
    arms: Sequence[str] = (),
) -> tuple[Endpoint, ...]:
    """Return an arm for each recipe that is named, each on a port of its own.

    Where none is named, for each usual one that fits the model: recipes for windows are included
    if *has_windows* is None (not known). Raises UsageError for a name that no recipe has.
    """
    for name in arms:
        if name not in WELL_KNOWN:
            raise UsageError(f"no well-known arm '{name}'", hint=f"any of: {', '.join(WELL_KNOWN)}")
    usual = [each for each in RECIPES if has_windows is not False or not each.needs_windows]
    fitting = [WELL_KNOWN[name] for name in dict.fromkeys(arms)] or usual
    return tuple(
        _arm(recipe, model, FIRST_PORT + position, vllm, pins or Pins())
        for position, recipe in enumerate(fitting)
    )


def explanation(arms: Sequence[Endpoint]) -> str:
    """Return a shell script: each arm's command below a comment on its purpose."""
    lines = [
        (
            f"# Tried with vLLM {TRIED} (its sources were read up to {READ}): pip install "
            f"vllm=={TRIED}"
        ),
        "# Start one arm at a time on one GPU, or each on a GPU of its own (CUDA_VISIBLE_DEVICES).",
        (
            "# Hold equal what is not compared: version, weights (--revision), "
            "--max-model-len, --max-num-batched-tokens, and the pool's bytes"
        ),
        "# (--kv-cache-memory-bytes; without it the pool is what --gpu-memory-utilization leaves).",
        (
            "# /server_info and POST /reset_prefix_cache need VLLM_SERVER_DEV_MODE=1; not for "
            "servers that others reach."
        ),
    ]
    for arm in arms:
        lines += [
            "",
            " ".join(f"# {arm.name}: {why(arm) or 'as the arms file says.'}".splitlines()),
        ]
        if arm.launch is None:
            lines.append(f"# started elsewhere: {arm.shown_url}")
            continue
        env = [f"{name}={value}" for name, value in arm.launch.env.items()]
        lines.append(shlex.join((*(("env", *env) if env else ()), *arm.launch.command)))
    return "\n".join(lines) + "\n"


def why(arm: Endpoint) -> str | None:
    """Return the purpose of a recipe's arm; None for any other arm."""
    said = WELL_KNOWN[arm.name].why if arm.name in WELL_KNOWN else None
    if said is None or arm.model is None:
        return said
    return said.replace("--model MODEL", f"--model {shlex.quote(arm.model)}")


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


def config_file(model: str) -> Path:
    """Return the config.json of *model*: a file, a folder, or a model in the local HF cache.

    Raises ProfileError if there is none.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return path / "config.json"
    cached = _cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(cached.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise ProfileError(
            f"no config.json of '{model}' here",
            hint=f"hf download {model} config.json, or name the file",
        )
    return found[-1]


def has_windows(model: str) -> bool | None:
    """Return whether a model has sliding-window layers; None if its config is unreadable."""
    try:
        shape = model_shape(json.loads(config_file(model).read_text(encoding="utf-8")), name=model)
    except (ProfileError, ValueError):
        return None
    return any(group.kind == "sliding" for group in shape.groups)


def _cache() -> Path:
    if hub := os.environ.get("HF_HUB_CACHE"):
        return Path(hub)
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"
