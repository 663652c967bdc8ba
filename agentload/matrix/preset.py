"""Matrices to begin with: files that ship with the package, and that people edit."""

from __future__ import annotations

from typing import Final

from agentload.builtin import find

PLACE: Final = "meta-llama/Llama-3.1-8B-Instruct"
"""What a preset serves as its first model unless it is told otherwise."""


def preset_text(name: str, *, model: str | None) -> str:
    """Return a shipped matrix, for *model* where one is named. Raises AgentloadError naming those that there are."""
    text = find("presets", name).read_text(encoding="utf-8")
    return text if model is None else text.replace(PLACE, model)
