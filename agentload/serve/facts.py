"""Tell what the server of an arm reports of itself.

That is its version, its models, its cache configuration and its start-up log.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from agentload import documents
from agentload.kvmath.pool import TRIED, Pool
from agentload.model.kv import FORMATS
from agentload.model.profile import ArmProfile
from agentload.model.record import Record

VLLM: Final[Mapping[str, dict[str, Any]]] = documents.own_document("agentload.serve", "vllm.yaml")
"""Words and numbers that vLLM reports of itself, from vllm.yaml."""
FIRST_TOKEN_S: Final[tuple[float, ...]] = tuple(
    VLLM["histograms"]["time_to_first_token_seconds"]["bounds"]
)
"""Upper bounds of vLLM's histogram of times to first token, in s."""


class Facts(Record):
    """Hold an arm with the KV pool that its server allocated."""

    arm: ArmProfile
    pool: Pool
    created: int
    """Wall clock of the start, in seconds."""

    @property
    def model(self) -> str:
        """Name under which the model is served."""
        return self.arm.model.name

    @property
    def version(self) -> str:
        """Version of the serving software."""
        found = re.search(r"\d+(\.\d+)+\S*", self.arm.server.software)
        # The version of vLLM whose wire format this package follows
        return found[0] if found else TRIED

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint` of every answer."""
        return f"vllm-{self.version}-{blake2b(repr(self.arm).encode(), digest_size=4).hexdigest()}"

    @property
    def dtype(self) -> str:
        """KV cache dtype as vLLM prints it."""
        return FORMATS[self.arm.kv_dtype].flag

    def models(self) -> dict[str, Any]:
        """Return the answer of `/v1/models`."""
        own = {
            "id": f"modelperm-{blake2b(self.model.encode(), digest_size=8).hexdigest()}",
            "created": self.created,
        }
        entry = {
            "id": self.model,
            "created": self.created,
            "root": self.model,
            "max_model_len": self.arm.server.max_model_len,
        }
        entry = VLLM["model"] | entry | {"permission": [VLLM["permission"] | own]}
        return {"object": "list", "data": [entry]}

    def cache_config(self) -> dict[str, Any]:
        """Return vLLM's cache configuration, as `/server_info` shows it."""
        server = self.arm.server
        return VLLM["cache_config"] | {
            "block_size": server.block_tokens,
            "gpu_memory_utilization": server.gpu_memory_utilization,
            "cache_dtype": self.dtype,
            "enable_prefix_caching": server.prefix_caching,
            "kv_cache_dtype_skip_layers": list(self.arm.skip_layers),
            "num_gpu_blocks": self.pool.pages,
            "effective_attention_block_size": self.pool.layout.block_tokens,
            "kv_cache_size_tokens": self.pool.tokens,
            "kv_cache_max_concurrency": self.pool.concurrency,
            "kv_cache_memory_bytes": server.kv_cache_memory_bytes,
            "kv_offloading_size": server.offload and server.offload.gib,
        }

    def server_info(self) -> dict[str, Any]:
        """Return the answer of `/server_info`: the sections of vLLM's that have facts."""
        server, drafting = self.arm.server, self.arm.speculation
        return {
            "vllm_config": {
                "model_config": {
                    "model": self.model,
                    "tokenizer": self.model,
                    "dtype": "torch.bfloat16",
                    "max_model_len": server.max_model_len,
                    "served_model_name": self.model,
                },
                "cache_config": self.cache_config(),
                "scheduler_config": {
                    "max_num_batched_tokens": server.max_num_batched_tokens,
                    "max_num_seqs": server.max_num_seqs,
                    "max_num_queued_reqs": server.max_waiting,
                    "enable_chunked_prefill": True,
                    "policy": "fcfs",
                },
                "attention_config": {"backend": self.backend},
                "device_config": {"device": "cuda"},
                "speculative_config": drafting
                and {"method": drafting.method, "num_speculative_tokens": drafting.drafts},
            }
        }

    @property
    def backend(self) -> str | None:
        """Attention backend by vLLM's name; None where the profile names none."""
        found = re.search(r"[A-Z][A-Z_]+[A-Z]", self.arm.server.backend or "")
        return found[0] if found else None

    @property
    def flash_version(self) -> int | None:
        """Version of FlashAttention; None where the profile names none."""
        found = re.search(r"\(FA(\d)\)", self.arm.server.backend or "")
        return int(found[1]) if found else None

    def log_lines(self, url: str) -> Iterator[tuple[str, str, str]]:
        """Yield what the server logs at its start, as (process, place in source, message)."""
        server, pool = self.arm.server, self.pool
        emulated = f"emulated by agentload: {self.arm.profile}/{self.arm.name}"
        yield (
            "APIServer",
            "api_utils.py:347",
            f"version {self.version}  model {self.model}  ({emulated})",
        )
        yield "APIServer", "model.py:2152", f"Using max model len {server.max_model_len}"
        if self.arm.kv_dtype.startswith("fp8"):
            text = (
                f"Using {self.dtype} data type to store kv cache. It reduces the GPU memory "
                "footprint and boosts the performance. "
                "Meanwhile, it may cause accuracy drop without a proper scaling factor"
            )
            yield "APIServer", "cache.py:361", text
        if self.backend:
            yield (
                "EngineCore",
                "cuda.py:482",
                (
                    f"Using {self.backend} attention backend out of potential backends: "
                    f"['{self.backend}']."
                ),
            )
        size = (
            f"GPU KV cache size: {pool.tokens:,} tokens, "
            f"Maximum concurrency for {server.max_model_len:,} tokens per request: "
            f"{pool.concurrency:.2f}x"
        )
        yield "EngineCore", "kv_cache_utils.py:2327", size
        sizes = tuple(
            table.block_tokens for table in pool.layout.tables for _ in range(table.count)
        )
        if len(sizes) > 1:
            yield "EngineCore", "kv_cache_utils.py:853", f"kv cache group sizes {sizes}"
        yield "APIServer", "entry.py:140", f"Starting vLLM server on {url}"
