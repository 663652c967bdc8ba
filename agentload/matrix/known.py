"""The configurations that need no settings: those of the KV-cache comparison, as `agentload launch --print` explains them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from agentload.errors import UsageError
from agentload.matrix.described import Config, Settings
from agentload.model.kv import RECIPES

WELL_KNOWN: Final[Mapping[str, Settings]] = {
    recipe.arm: {flag.removeprefix("--"): value for flag, value in zip(recipe.flags[::2], recipe.flags[1::2], strict=True)}
    for recipe in RECIPES
}
_BY_NAME: Final = {recipe.arm: recipe for recipe in RECIPES}


def config(name: str, base: str | None, given: Settings, *, only: tuple[str, ...] = (), where: str) -> Config:
    """Return a configuration: what its base, or its own well-known name, has, and what it is given. Raises UsageError."""
    of = name if base is None else base
    if base and base not in WELL_KNOWN:
        near = get_close_matches(base, WELL_KNOWN, n=1)
        known = f"did you mean {near[0]}?" if near else f"one of: {', '.join(WELL_KNOWN)}"
        raise UsageError(f"{where}: no well-known configuration '{base}'", hint=known)
    merged = {**WELL_KNOWN.get(of, {}), **given}
    recipe = _BY_NAME.get(of)
    return Config(
        name=name,
        settings=merged,
        only=only,
        needs_windows=recipe is not None and recipe.needs_windows,
        is_calibrated=recipe is not None and recipe.is_calibrated,
    )
