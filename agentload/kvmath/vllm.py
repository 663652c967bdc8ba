"""The releases of vLLM that this version of agentload knows, and their servers' defaults."""

from typing import Final

READ: Final = "0.33.0"
"""The release whose source our rules follow: flags, defaults, kernels, pages."""
TRIED: Final = "0.32.0"
"""The release that was run and recorded: used in commands and images, for a matrix's settings, and in tests of pools and answers."""

# `EngineArgs.get_batch_defaults`: GPU memory in GiB from which a step has this many tokens with the API server.
_STEPS: Final = ((160.0, 16384), (70.0, 8192))
_SMALL_STEP: Final = 2048
USUAL_STEP: Final = 8192
"""The step of common GPUs, used if none is named."""


def batched_tokens(memory_gib: float, name: str = "") -> int:
    """Return the default max_num_batched_tokens on a GPU. An A100 gets that of small GPUs, whatever its memory."""
    if "a100" in name.lower():
        return _SMALL_STEP
    return next((tokens for least, tokens in _STEPS if memory_gib >= least), _SMALL_STEP)
