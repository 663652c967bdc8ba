"""Size the pool of pages that a server allocates at start, by vLLM's rules and defaults."""

from typing import Final

from agentload.errors import ProfileError
from agentload.kvmath.layout import Layout, layout
from agentload.model.profile import ArmProfile, Gpu, ModelShape, Server
from agentload.model.record import Record

GIB = 1 << 30


class Pool(Record):
    """The KV pool of one server."""

    layout: Layout
    pages: int
    """vLLM's num_gpu_blocks, including the null block."""
    concurrency: float
    """How many requests of full model length fit, as vLLM logs it."""
    tokens: int
    """`concurrency` times the model length: vLLM's `kv_cache_size_tokens`.

    With windows this figure depends on the model length.
    """


def kv_bytes(gpu: Gpu, model: ModelShape, server: Server) -> int:
    """Return the bytes of a server's KV pool: as configured, or what the weights leave.

    The latter is the server's share of the GPU less weights and overhead. Raises
    ProfileError if nothing is left or the size of the weights is unknown.
    """
    if server.kv_cache_memory_bytes is not None:
        return server.kv_cache_memory_bytes
    if model.weight_gib is None:
        raise ProfileError(
            f"model {model.name}: the size of its loaded weights is unknown",
            hint="give server.kv_cache_memory_bytes",
        )
    left = gpu.memory_gib * server.gpu_memory_utilization - model.weight_gib - server.overhead_gib
    if left <= 0:
        raise ProfileError(
            f"{model.name} leaves no memory for a KV pool on {gpu.name}: {model.weight_gib} "
            "GiB of weights",
            hint="a larger GPU, or a higher gpu_memory_utilization",
        )
    return int(left * GIB)


def pool(cut: Layout, memory_bytes: int, *, max_model_len: int, in_flight: int) -> Pool:
    """Size a pool; *in_flight* is max_num_batched_tokens.

    Raises ProfileError if not even one full request fits.
    """
    pages = memory_bytes // cut.page_bytes
    needed = cut.peak_pages(max_model_len, in_flight)
    if pages < needed:
        raise ProfileError(
            f"a KV pool of {memory_bytes / GIB:.2f} GiB does not hold one request of "
            f"{max_model_len} tokens",
            hint="a shorter max_model_len, or more memory",
        )
    concurrency = pages / needed
    return Pool(
        layout=cut, pages=pages, concurrency=concurrency, tokens=int(concurrency * max_model_len)
    )


def pool_of(arm: ArmProfile) -> Pool:
    """Size the pool of an arm."""
    server = arm.server
    cut = layout(
        arm.model,
        arm.kv_dtype,
        skip_layers=arm.skip_layers,
        block_tokens=server.block_tokens,
        prefix_caching=server.prefix_caching,
    )
    memory = kv_bytes(arm.gpu, arm.model, server)
    return pool(
        cut, memory, max_model_len=server.max_model_len, in_flight=server.max_num_batched_tokens
    )


READ: Final = "0.33.0"
"""The release whose source our rules follow: flags, defaults, kernels, pages."""
TRIED: Final = "0.32.0"
"""The release that was run and recorded.

Commands, images, a matrix's settings, and tests of pools and answers use it.
"""

# `EngineArgs.get_batch_defaults`: GPU memory in GiB from
# which a step has this many tokens with the API server.
_STEPS: Final = ((160.0, 16384), (70.0, 8192))
_SMALL_STEP: Final = 2048
USUAL_STEP: Final = 8192
"""The step of common GPUs, used if none is named."""


def batched_tokens(memory_gib: float, name: str = "") -> int:
    """Return the default max_num_batched_tokens on a GPU.

    An A100 gets that of small GPUs, whatever its memory.
    """
    if "a100" in name.lower():
        return _SMALL_STEP
    return next((tokens for least, tokens in _STEPS if memory_gib >= least), _SMALL_STEP)
