from __future__ import annotations

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.config import model_shape, shape_of
from agentload.model.profile import Experts, LayerGroup, ModelShape

PLAIN: dict[str, object] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "max_position_embeddings": 4096,
}
GATED_DELTA: dict[str, object] = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
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


def groups(**more: object) -> list[tuple[str, int, int, int, int | None]]:
    shape = model_shape({**PLAIN, **more}, name="m")
    return [
        (group.kind, group.layers, group.kv_heads, group.head_dim, group.window)
        for group in shape.groups
    ]


def test_a_plain_model_has_one_group_and_derives_its_head_size() -> None:
    assert model_shape(PLAIN, name="m") == ModelShape(
        name="m",
        groups=(LayerGroup(kind="full", layers=4, kv_heads=2, head_dim=64, numbers=(0, 1, 2, 3)),),
        heads=8,
        max_len=4096,
        weight_bits=16,
    )


def test_listed_layer_types_become_groups() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    assert groups(layer_types=kinds, sliding_window=128) == [
        ("sliding", 2, 2, 64, 128),
        ("full", 2, 2, 64, None),
    ]


def test_an_older_window_pattern_is_read() -> None:
    assert groups(sliding_window=128, sliding_window_pattern=4) == [
        ("sliding", 3, 2, 64, 128),
        ("full", 1, 2, 64, None),
    ]


def test_a_window_that_is_switched_off_does_not_slide() -> None:
    assert groups(sliding_window=128, use_sliding_window=False) == [("full", 4, 2, 64, None)]


def test_global_layers_may_have_their_own_heads_and_late_layers_may_share_a_cache() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    made = groups(
        layer_types=kinds,
        sliding_window=512,
        head_dim=256,
        global_head_dim=512,
        num_kv_shared_layers=1,
    )
    assert made == [("sliding", 2, 2, 256, 512), ("full", 1, 2, 512, None)]


def test_latent_attention_keeps_one_entry_a_token() -> None:
    assert groups(kv_lora_rank=512, qk_rope_head_dim=64) == [("mla", 4, 1, 576, None)]


def test_a_hybrid_has_states_beside_its_attention() -> None:
    shape = model_shape(
        {**PLAIN, "layer_types": ["linear_attention"] * 3 + ["full_attention"], **GATED_DELTA},
        name="m",
    )
    assert [(group.kind, group.layers, group.state_bytes) for group in shape.groups] == [
        ("mamba", 3, 2_146_304),
        ("full", 1, 0),
    ]


def test_experts_and_the_text_part_of_a_multimodal_model_are_found() -> None:
    shape = model_shape(
        {"text_config": {**PLAIN, "num_local_experts": 32, "num_experts_per_tok": 4}}, name="m"
    )
    assert (shape.experts, shape.heads) == (Experts(total=32, active=4), 8)


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({}, [("mamba", 3), ("full", 1)]),
        ({"full_attention_interval": 2}, [("mamba", 2), ("full", 2)]),
    ],
)
def test_a_hybrid_that_lists_no_layers_has_full_attention_at_an_interval(
    more: dict[str, object], kinds: list[tuple[str, int]]
) -> None:
    shape = model_shape({**PLAIN, **GATED_DELTA, **more}, name="m")
    assert [(group.kind, group.layers) for group in shape.groups] == kinds


@pytest.mark.parametrize(
    "layout",
    [
        {"hybrid_override_pattern": "M-M*"},
        {"attn_layer_period": 8, "mamba_d_state": 16},
        {"ssm_cfg": {"d_state": 16}},
        {"layer_types": ["mamba", "attention"] * 2, "mamba_d_state": 256},
        {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "linear_attn_config": {"kda_layers": [1]}},
    ],
)
def test_recurrent_layers_that_are_not_known_are_refused_instead_of_taken_for_attention(
    layout: dict[str, object],
) -> None:
    with pytest.raises(ProfileError, match="unknown kind of recurrent layers"):
        model_shape({**PLAIN, **layout}, name="m")


def test_a_family_with_states_may_have_a_member_without() -> None:
    assert groups(layer_types=["attention"] * 4, mamba_d_state=256) == [("full", 4, 2, 64, None)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs an integer 'num_hidden_layers'"),
        ({**PLAIN, "layer_types": ["hyena"]}, "unknown layer types hyena"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        model_shape(config, name="m")


def test_the_active_weights_of_published_models_are_theirs() -> None:
    """Llama 3.1 8B has 8.03 B with 2 x 0.525 B of embeddings;
    gpt-oss-20b 3.6 B active with 0.58 B of its output head.
    """
    assert model_shape(LLAMA_8B, name="l").active_parameters == pytest.approx(6.98e9, rel=1e-3)
    assert model_shape(GPT_OSS_20B, name="g").active_parameters == pytest.approx(3.03e9, rel=1e-2)


@pytest.mark.parametrize(
    ("more", "bits"),
    [
        ({}, 16),
        ({"quantization_config": {"quant_method": "mxfp4"}}, 4),
        ({"quantization_config": {"quant_method": "fp8"}}, 8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, 4),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
                }
            },
            8,
        ),
        ({"quantization_config": {"quant_method": "new"}}, None),
    ],
)
def test_the_width_of_weights_is_what_the_config_says(
    more: dict[str, object], bits: int | None
) -> None:
    assert model_shape(LLAMA_8B | more, name="l").weight_bits == bits


def test_no_floor_is_claimed_for_weights_that_are_multiplied_in_fp4_or_layers_of_unknown_size() -> (
    None
):
    assert (
        model_shape(
            LLAMA_8B | {"quantization_config": {"quant_algo": "NVFP4"}}, name="l"
        ).active_parameters
        is None
    )
    assert model_shape({**LLAMA_8B, "intermediate_size": None}, name="l").active_parameters is None


def test_a_feed_forward_layer_without_a_gate_has_two_matrices() -> None:
    plain = model_shape(
        LLAMA_8B | {"hidden_act": "gelu_new", "model_type": "phi"}, name="p"
    ).active_parameters
    gated = model_shape(LLAMA_8B, name="l").active_parameters
    assert plain is not None
    assert gated is not None
    assert gated - plain == 32 * 4096 * 14336


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (
            "layers=32,kv_heads=8,head_dim=128",
            (LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128),),
        ),
        (
            "layers=24, kv_heads=8, head_dim=64, window=128, windowed=12",
            (
                LayerGroup(kind="sliding", layers=12, kv_heads=8, head_dim=64, window=128),
                LayerGroup(kind="full", layers=12, kv_heads=8, head_dim=64),
            ),
        ),
        ("layers=61,latent=576", (LayerGroup(kind="mla", layers=61, head_dim=576),)),
    ],
)
def test_figures_become_groups_of_layers(text: str, groups: tuple[LayerGroup, ...]) -> None:
    assert shape_of(text, max_len=8192).groups == groups


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers=32,kv_heads=8", "lacks 'head_dim'"),
        ("layers=32,heads=8", "'heads' is not a figure of a model"),
        ("layers=x", "'layers' must be an integer"),
        ("layers=4,kv_heads=1,head_dim=64,windowed=2", "of 'window' tokens"),
        ("layers=4,kv_heads=1,head_dim=64,window=128,windowed=4", "fewer than all"),
    ],
)
def test_figures_that_say_no_model_are_refused(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        shape_of(text, max_len=8192)
