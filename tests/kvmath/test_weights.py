from __future__ import annotations

import pytest

from agentload.kvmath.config import model_shape

LLAMA_8B: dict[str, object] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
GPT_OSS_20B: dict[str, object] = {
    "model_type": "gpt_oss",
    "hidden_act": "silu",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}


def test_the_active_weights_of_published_models_are_theirs() -> None:
    """Llama 3.1 8B has 8.03 B with 2 x 0.525 B of embeddings; gpt-oss-20b 3.6 B active with 0.58 B of its output head."""
    assert model_shape(LLAMA_8B, name="l").active_parameters == pytest.approx(6.98e9, rel=1e-3)
    assert model_shape(GPT_OSS_20B, name="g").active_parameters == pytest.approx(3.03e9, rel=1e-2)


@pytest.mark.parametrize(
    ("more", "bits"),
    [
        ({}, 16),
        ({"quantization_config": {"quant_method": "mxfp4"}}, 4),
        ({"quantization_config": {"quant_method": "fp8"}}, 8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, 4),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}}, 8),
        ({"quantization_config": {"quant_method": "new"}}, None),
    ],
)
def test_the_width_of_weights_is_what_the_config_says(more: dict[str, object], bits: int | None) -> None:
    assert model_shape(LLAMA_8B | more, name="l").weight_bits == bits


def test_no_floor_is_claimed_for_weights_that_are_multiplied_in_fp4_or_layers_of_unknown_size() -> None:
    assert model_shape(LLAMA_8B | {"quantization_config": {"quant_algo": "NVFP4"}}, name="l").active_parameters is None
    assert model_shape({**LLAMA_8B, "intermediate_size": None}, name="l").active_parameters is None


def test_a_feed_forward_layer_without_a_gate_has_two_matrices() -> None:
    plain = model_shape(LLAMA_8B | {"hidden_act": "gelu_new", "model_type": "phi"}, name="p").active_parameters
    gated = model_shape(LLAMA_8B, name="l").active_parameters
    assert plain is not None
    assert gated is not None
    assert gated - plain == 32 * 4096 * 14336
