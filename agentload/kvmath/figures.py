"""Read a model's geometry from figures such as `layers=32,kv_heads=8,head_dim=128`, where its config.json is not at hand."""

from __future__ import annotations

from typing import Final

from agentload.errors import ProfileError
from agentload.model.profile import LayerGroup, ModelShape

FIGURES: Final = ("layers", "kv_heads", "head_dim", "window", "windowed", "latent")
EXAMPLE: Final = "layers=32,kv_heads=8,head_dim=128; with windows window=4096,windowed=16; latent attention is layers=61,latent=576"


def shape_of(text: str, *, max_len: int, weight_gib: float | None = None) -> ModelShape:
    """Return the shape that *text* describes: *windowed* of its layers keep a window, the others every token."""
    figures = dict(_figure(part.strip()) for part in text.split(","))
    latent = figures.get("latent")
    wanted = ("layers",) if latent else ("layers", "kv_heads", "head_dim")
    if missing := next((name for name in wanted if name not in figures), None):
        raise ProfileError(f"'{text}' has no '{missing}'", hint=EXAMPLE)
    return ModelShape(name=text, groups=_latent(figures) if latent else _groups(text, figures), max_len=max_len, weight_gib=weight_gib)


def _latent(figures: dict[str, int]) -> tuple[LayerGroup, ...]:
    return (LayerGroup(kind="mla", layers=figures["layers"], head_dim=figures["latent"]),)


def _groups(text: str, figures: dict[str, int]) -> tuple[LayerGroup, ...]:
    layers, windowed, window = figures["layers"], figures.get("windowed", 0), figures.get("window")
    if (window is None) != (windowed == 0) or windowed >= layers:
        raise ProfileError(f"'{text}': windows are 'windowed' layers, fewer than all, of 'window' tokens", hint=EXAMPLE)
    heads, width = figures["kv_heads"], figures["head_dim"]
    full = LayerGroup(kind="full", layers=layers - windowed, kv_heads=heads, head_dim=width)
    if not windowed:
        return (full,)
    return (LayerGroup(kind="sliding", layers=windowed, kv_heads=heads, head_dim=width, window=window), full)


def _figure(part: str) -> tuple[str, int]:
    name, _, value = part.partition("=")
    if name not in FIGURES:
        raise ProfileError(f"'{name}' is no figure of a model", hint=f"known: {', '.join(FIGURES)}")
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ProfileError(f"'{name}' must be a whole number of at least 1, got '{value}'", hint=EXAMPLE)
    return name, int(value)
