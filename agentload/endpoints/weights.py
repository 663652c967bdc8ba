"""Find the config.json of a model on this machine; nothing is downloaded."""

import json
import os
from pathlib import Path

from agentload.errors import ProfileError
from agentload.kvmath.config import model_shape


def config_file(model: str) -> Path:
    """Return the file that *model* names: itself, in that folder, or of that name in the local Hugging Face cache."""
    path = Path(model).expanduser()
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return path / "config.json"
    cached = _cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    found = sorted(cached.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise ProfileError(f"no config.json of '{model}' here", hint=f"hf download {model} config.json, or name the file")
    return found[-1]


def has_windows(model: str) -> bool | None:
    """Tell whether a model has sliding-window layers; None where its config is not here, or of a shape that nobody knows."""
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
