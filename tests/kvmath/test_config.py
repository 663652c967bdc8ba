from __future__ import annotations

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.config import model_shape
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


def groups(**more: object) -> list[tuple[str, int, int, int, int | None]]:
    shape = model_shape({**PLAIN, **more}, name="m")
    return [(group.kind, group.layers, group.kv_heads, group.head_dim, group.window) for group in shape.groups]


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
    assert groups(layer_types=kinds, sliding_window=128) == [("sliding", 2, 2, 64, 128), ("full", 2, 2, 64, None)]


def test_an_older_window_pattern_is_read() -> None:
    assert groups(sliding_window=128, sliding_window_pattern=4) == [("sliding", 3, 2, 64, 128), ("full", 1, 2, 64, None)]


def test_a_window_that_is_switched_off_does_not_slide() -> None:
    assert groups(sliding_window=128, use_sliding_window=False) == [("full", 4, 2, 64, None)]


def test_global_layers_may_have_their_own_heads_and_late_layers_may_share_a_cache() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    made = groups(layer_types=kinds, sliding_window=512, head_dim=256, global_head_dim=512, num_kv_shared_layers=1)
    assert made == [("sliding", 2, 2, 256, 512), ("full", 1, 2, 512, None)]


def test_latent_attention_keeps_one_entry_a_token() -> None:
    assert groups(kv_lora_rank=512, qk_rope_head_dim=64) == [("mla", 4, 1, 576, None)]


def test_a_hybrid_has_states_beside_its_attention() -> None:
    shape = model_shape(
        {
            **PLAIN,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            **GATED_DELTA,
        },
        name="m",
    )
    assert [(group.kind, group.layers, group.state_bytes) for group in shape.groups] == [("mamba", 3, 2_146_304), ("full", 1, 0)]


def test_experts_and_the_text_part_of_a_multimodal_model_are_found() -> None:
    shape = model_shape({"text_config": {**PLAIN, "num_local_experts": 32, "num_experts_per_tok": 4}}, name="m")
    assert (shape.experts, shape.heads) == (Experts(total=32, active=4), 8)


@pytest.mark.parametrize(
    ("more", "kinds"), [({}, [("mamba", 3), ("full", 1)]), ({"full_attention_interval": 2}, [("mamba", 2), ("full", 2)])]
)
def test_a_hybrid_that_lists_no_layers_has_full_attention_at_an_interval(more: dict[str, object], kinds: list[tuple[str, int]]) -> None:
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
def test_recurrent_layers_that_are_not_known_are_refused_instead_of_taken_for_attention(layout: dict[str, object]) -> None:
    with pytest.raises(ProfileError, match="recurrent layers of its kind are not known"):
        model_shape({**PLAIN, **layout}, name="m")


def test_a_family_with_states_may_have_a_member_without() -> None:
    assert groups(layer_types=["attention"] * 4, mamba_d_state=256) == [("full", 4, 2, 64, None)]


@pytest.mark.parametrize(
    ("config", "message"),
    [({}, "no whole number 'num_hidden_layers'"), ({**PLAIN, "layer_types": ["hyena"]}, "unknown layer types hyena")],
)
def test_a_config_that_cannot_be_read_is_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        model_shape(config, name="m")
