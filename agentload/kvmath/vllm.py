"""The release of vLLM that this version of agentload knows."""

from __future__ import annotations

from typing import Final

CURRENT: Final = "0.33.0"
"""Whose flags, defaults, kernels and pages our rules and commands were read from."""
