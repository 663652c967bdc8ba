from __future__ import annotations

from typing import Any

import pytest

from agentload.kvmath.compare import sizes
from agentload.kvmath.config import model_shape, position_scaling
from agentload.kvmath.gpus import gpu_named
from agentload.kvmath.practice import RULES, PublishedRule, ServedModel, advice

PLAIN: dict[str, Any] = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}
WINDOWED: dict[str, Any] = PLAIN | {
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 16,
}


def told(
    config: dict[str, Any] = PLAIN, *, gpu: str | None = None, is_multimodal: bool = False
) -> dict[str, PublishedRule]:
    shape = model_shape(config, name="m")
    found = sizes(shape, 40 << 30, max_model_len=32768, in_flight=8192)
    subject = ServedModel(
        shape=shape,
        sizes=found,
        memory_bytes=40 << 30,
        max_model_len=32768,
        batched_tokens=8192,
        block_tokens=16,
        gpu=gpu_named(gpu) if gpu else None,
        is_multimodal=is_multimodal,
        scaling=position_scaling(config),
    )
    return {each.rule: each for each in advice(subject)}


def test_every_rule_has_a_source_what_holds_now_and_a_name_of_its_own() -> None:
    assert len({rule.rule for rule in RULES}) == len(RULES)
    assert all(rule.source and rule.because and rule.published for rule in RULES)
    assert {rule.today for rule in RULES} == {"holds", "default", "outdated", "wrong"}


def test_rules_come_to_the_models_own_figures() -> None:
    found = told(gpu="H100")
    # 128 KiB a token: 8,192 in a GiB; 10 requests of 32k in 40 GiB.
    assert found["memory utilisation"].here == (
        "0.01 more of a H100-SXM is 0.80 GiB; one GiB holds this many tokens: bf16 8,192, "
        "fp8 16,384"
    )
    assert found["sequences at once"].here == (
        "concurrent requests of 32,768 tokens that fit: bf16 10.0, fp8 20.0; beyond that "
        "they preempt each other"
    )
    assert found["FP8 dtypes"].here == "pool compared with bf16: fp8 2.00x"
    assert (
        found["chunked prefill"].here
        == "a prompt of 32,768 tokens takes 4 steps of 8,192, interleaved with decodes"
    )
    assert (
        found["RoPE scaling"].here
        == "a request of 32,768 tokens takes 4,295 MB at bf16, even with RoPE scaling"
    )
    assert found["window attention"].here == "this model has no sliding-window layers"
    assert found["speculative decoding"].here is None
    assert found["bytes of 1,000 tokens"].here == "1,000 tokens take bf16 131.1 MB, fp8 65.5 MB"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, None),
        ({"rope_scaling": None}, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, None),
        (
            {
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                }
            },
            "RoPE scaling 'yarn' by 4.0 of 32768 tokens",
        ),
        (
            {"text_config": {"rope_parameters": {"rope_type": "llama3", "factor": 8}}},
            "RoPE scaling 'llama3' by 8",
        ),
    ],
)
def test_the_rule_of_rope_scaling_says_what_the_config_scales(
    config: dict[str, Any], said: str | None
) -> None:
    assert position_scaling(config) == said
    rule = told(PLAIN | config)["RoPE scaling"]
    assert rule.today == "outdated"
    assert "--hf-overrides takes the scaling" in rule.because
    plain = "a request of 32,768 tokens takes 4,295 MB at bf16, even with RoPE scaling"
    assert rule.here == (plain if said is None else f"this config has {said}; {plain}")


def test_what_an_article_says_of_a_thousand_tokens_is_one_layer_of_all() -> None:
    shape = model_shape(PLAIN | {"num_hidden_layers": 128}, name="70B-class")
    (reference, *_) = sizes(shape, 80 << 30, max_model_len=32768, in_flight=8192)
    published = 4_000_000
    assert reference.bytes_per_token * 1000 // 128 == pytest.approx(published, rel=0.03)
    assert round(reference.bytes_per_token * 1000 / published) == 131
    because = told()["bytes of 1,000 tokens"].because
    assert f"{reference.bytes_per_token:,} bytes" in because
    assert "131 times" in because


def test_prefix_caching_off_by_default_is_named_as_wrong() -> None:
    found = told()["prefix caching off"]
    assert (found.published, found.today) == ("prefix caching is off by default", "wrong")


def test_a_model_with_windows_reuses_larger_blocks_where_they_are_skipped() -> None:
    found = told(WINDOWED)
    assert (found["prefix-friendly prompts"].here or "").startswith(
        "reuse is in whole blocks (bf16 16, fp8 16, fp8-skip-sw 32 tokens)"
    )
    assert (found["window attention"].here or "").startswith(
        "16 of 32 layers keep 128 tokens; windows left at two bytes make the FP8 pool 1."
    )


@pytest.mark.parametrize(
    ("gpu", "config", "says"),
    [
        (None, PLAIN, "name the GPU"),
        ("H100", PLAIN, "stays on FLASH_ATTN (FA3)"),
        ("H100", PLAIN | {"head_dim": 256}, "heads of 256 decode no faster"),
        ("H100", PLAIN | {"head_dim": 512}, "are not supported by FA3"),
        ("H100", PLAIN | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "FLASHMLA"),
        ("L40S", PLAIN, "--attention-backend FLASHINFER"),
        ("B200", PLAIN, "serves both dtypes"),
        ("MI300X", PLAIN, "read the kernel"),
    ],
)
def test_the_kernel_that_fp8_takes_depends_on_the_gpu(
    gpu: str | None, config: dict[str, Any], says: str
) -> None:
    assert says in (told(config, gpu=gpu)["backend and dtype"].here or "")


def test_images_count_where_the_model_sees_any() -> None:
    assert told()["multimodal tokens"].here == "the config has no vision or audio part"
    assert "1,369 tokens, 179 MB at bf16" in (
        told(is_multimodal=True)["multimodal tokens"].here or ""
    )
