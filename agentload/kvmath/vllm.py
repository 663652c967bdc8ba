"""The releases of vLLM that this version of agentload knows, and what their servers take unasked."""

from __future__ import annotations

from typing import Final

READ: Final = "0.33.0"
"""Whose sources our rules were read from: flags, defaults, kernels, pages."""
TRIED: Final = "0.32.0"
"""That was run and recorded: what commands and images name, whose settings a matrix takes, whose pools and answers ours equal."""

# `EngineArgs.get_batch_defaults`: from so many GiB a step of the API server is so many tokens.
_STEPS: Final = ((160.0, 16384), (70.0, 8192))
_SMALL_STEP: Final = 2048
USUAL_STEP: Final = 8192
"""Of the GPUs that most models are served on: what is taken where nobody names one."""


def batched_tokens(memory_gib: float, name: str = "") -> int:
    """Return max_num_batched_tokens of a server on such a GPU. An A100 gets that of small ones, whatever its memory."""
    if "a100" in name.lower():
        return _SMALL_STEP
    return next((tokens for least, tokens in _STEPS if memory_gib >= least), _SMALL_STEP)
