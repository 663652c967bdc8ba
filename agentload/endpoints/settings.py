"""Pick from vLLM's /server_info the settings that make servers comparable or not. It is open with VLLM_SERVER_DEV_MODE=1 alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# our name: the section and field of `vllm_config`
_WANTED: Final[Mapping[str, tuple[str, str]]] = {
    "attention_backend": ("attention_config", "backend"),
    "flash_attention": ("attention_config", "flash_attn_version"),
    "weights": ("model_config", "model"),
    "quantization": ("model_config", "quantization"),
    "eager": ("model_config", "enforce_eager"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "kv_cache_memory_bytes": ("cache_config", "kv_cache_memory_bytes"),
    "tensor_parallel": ("parallel_config", "tensor_parallel_size"),
    "data_parallel": ("parallel_config", "data_parallel_size"),
    "speculative": ("speculative_config", "method"),
}


def settings(document: Mapping[str, object]) -> dict[str, object]:
    """Return what the answer says; a setting that it leaves open is left out."""
    config = document.get("vllm_config")
    if not isinstance(config, Mapping):
        return {}
    found = {name: _field(config, *where) for name, where in _WANTED.items()}
    return {name: value for name, value in found.items() if value is not None}


def _field(config: Mapping[str, object], section: str, name: str) -> object:
    part = config.get(section)
    return part.get(name) if isinstance(part, Mapping) else None
