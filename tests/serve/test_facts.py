import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentload.endpoints.identity import settings
from agentload.kvmath.config import model_shape
from agentload.kvmath.pool import pool_of
from agentload.model.kv import KvDtype
from agentload.model.profile import ArmProfile, OffloadTier, Speculation
from agentload.serve.facts import Facts
from tests.serve.arms import arm
from tests.serve.recorded_lines import shape, text

COMMON = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 32768,
}
LLAMA = {**COMMON, "model_type": "llama", "num_hidden_layers": 4}
WINDOWED = ["sliding_attention"] * 5 + ["full_attention"]
GEMMA = {
    **COMMON,
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "sliding_window": 512,
    "layer_types": WINDOWED,
}


def facts(served: ArmProfile) -> Facts:
    return Facts(arm=served, pool=pool_of(served), created=1795177583)


@pytest.mark.parametrize(
    ("recorded", "config", "dtype", "skipped"),
    [
        ("e-auto", LLAMA, "auto", ()),
        ("e-bf16", LLAMA, "bf16", ()),
        ("g3-fp8skip", GEMMA, "fp8", ("sliding_window",)),
    ],
)
def test_the_cache_configuration_has_every_label_and_value_that_a_real_server_showed(
    recorded: str, config: dict[str, object], dtype: KvDtype, skipped: tuple[str, ...]
) -> None:
    plain = arm()
    server = replace(
        plain.server, block_tokens=128, gpu_memory_utilization=0.92, max_num_batched_tokens=2048
    )
    served = replace(
        plain,
        model=model_shape(config, name="tiny"),
        server=server,
        kv_dtype=dtype,
        skip_layers=skipped,
    )
    ((sample,),) = (
        family.samples
        for family in text_string_to_metric_families(text(f"cache_config_{recorded}.txt") + "\n")
    )
    assert {"engine": "0"} | {
        name: str(value) for name, value in facts(served).cache_config().items()
    } == sample.labels


def test_the_models_listing_has_the_recorded_shape() -> None:
    assert json.dumps(shape(facts(arm()).models())) == json.dumps(
        shape(json.loads(text("models.json")))
    )


@pytest.mark.parametrize(
    ("software", "version"),
    [("vLLM 0.19.1", "0.19.1"), ("vllm-0.33.0rc1", "0.33.0rc1"), ("vLLM", "0.32.0")],
)
def test_the_version_is_the_one_that_the_profile_names(software: str, version: str) -> None:
    served = arm()
    assert (
        facts(replace(served, server=replace(served.server, software=software))).version == version
    )


def test_arms_differ_in_their_fingerprint_and_a_server_keeps_its_own() -> None:
    assert (
        facts(arm()).fingerprint == facts(arm()).fingerprint != facts(arm(step_ms=2.0)).fingerprint
    )


def test_a_server_that_drafts_or_offloads_says_so() -> None:
    served = arm()
    found = [
        settings(facts(replace(served, speculation=drafting)).server_info())
        for drafting in (
            None,
            Speculation(drafts=4, acceptance=0.7),
            Speculation(drafts=8, acceptance=0.7),
        )
    ]
    tier = replace(served.server, offload=OffloadTier(gib=64, gb_per_s=50))
    offloading = settings(facts(replace(served, server=tier)).server_info())
    assert offloading["kv_offloading_gib"] == 64
    assert "kv_offloading_gib" not in found[0]
    said = [(each.get("speculative"), each.get("drafts")) for each in found]
    assert said == [(None, None), ("ngram", 4), ("ngram", 8)]


def test_the_start_up_log_names_pool_backend_and_dtype() -> None:
    served = arm()
    fp8 = replace(
        served, kv_dtype="fp8", server=replace(served.server, backend="claimed FLASH_ATTN (FA3)")
    )
    log = "\n".join(message for *_, message in facts(fp8).log_lines("http://127.0.0.1:8000"))
    assert (
        "GPU KV cache size: 8,388,608 tokens, Maximum concurrency for 8,192 tokens per "
        "request: 1024.00x"
    ) in log
    assert "Using FLASH_ATTN attention backend" in log
    assert "Using fp8 data type to store kv cache" in log
    assert log.endswith("Starting vLLM server on http://127.0.0.1:8000")
