"""Pool sizes that a real vLLM 0.32.0 reported for small
models at 1 GiB of KV cache and a model length of 8192.
"""

from __future__ import annotations

import pytest

from agentload.kvmath.config import model_shape
from agentload.kvmath.layout import layout
from agentload.kvmath.pool import GIB, pool
from agentload.model.kv import KvDtype

COMMON = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 32768,
}
WINDOWED = ["sliding_attention"] * 5 + ["full_attention"]
CONFIGS: dict[str, dict[str, object]] = {
    "llama": {**COMMON, "model_type": "llama", "num_hidden_layers": 4},
    "gemma3": {
        **COMMON,
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "sliding_window": 512,
        "layer_types": WINDOWED,
    },
    "gpt_oss": {
        **COMMON,
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
}


@pytest.mark.parametrize(
    ("arch", "dtype", "skip", "reported"),
    [
        ("llama", "auto", (), [4096, 64.0, 524288]),
        ("llama", "bf16", (), [4096, 64.0, 524288]),
        ("llama", "fp8_e4m3", (), [8192, 128.0, 1048576]),
        ("llama", "fp8_e5m2", (), [8192, 128.0, 1048576]),
        ("gemma3", "auto", (), [16384, 96.94674556213018, 794187]),
        ("gemma3", "fp8", (), [32768, 193.89349112426035, 1588375]),
        ("gemma3", "fp8", ("sliding_window",), [16384, 119.5912408759124, 979691]),
        ("gpt_oss", "auto", (), [8192, 99.90243902439025, 818400]),
        ("gpt_oss", "fp8", (), [16384, 199.8048780487805, 1636801]),
        ("gpt_oss", "fp8", ("sliding_window",), [8192, 163.84, 1342177]),
    ],
)
def test_a_pool_is_exactly_as_large_as_a_real_vllm_reported(
    arch: str, dtype: KvDtype, skip: tuple[str, ...], reported: list[float]
) -> None:
    cut = layout(model_shape(CONFIGS[arch], name=arch), dtype, skip_layers=skip, block_tokens=128)
    made = pool(cut, GIB, max_model_len=8192, in_flight=2048)
    assert [made.pages, made.concurrency, made.tokens] == pytest.approx(reported, rel=1e-12)
