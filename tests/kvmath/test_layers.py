from __future__ import annotations

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.layers import bytes_per_token, token_bytes
from agentload.model.profile import KvDtype, LayerGroup, ModelShape

FULL = LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128)
WINDOWS = LayerGroup(kind="sliding", layers=12, kv_heads=8, head_dim=64, window=128)
MLA = LayerGroup(kind="mla", layers=61, head_dim=576)
HEAD_256 = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=256)
HEAD_512 = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=512)


def model(*groups: LayerGroup) -> ModelShape:
    return ModelShape(name="m", groups=groups, heads=32, max_len=131072)


@pytest.mark.parametrize(
    ("group", "dtype", "expected"),
    [
        (FULL, "auto", 4096),
        (FULL, "fp8", 2048),
        (MLA, "bf16", 1152),
        (MLA, "fp8", 576),
        (MLA, "fp8_ds_mla", 656),
        (HEAD_256, "fp8_per_token_head", 520),
        (HEAD_512, "fp8_per_token_head", 1032),
        (LayerGroup(kind="full", layers=1, kv_heads=2, head_dim=192, head_dim_v=128), "bf16", 1280),
        (LayerGroup(kind="mamba", layers=3, state_bytes=1 << 21), "bf16", 0),
    ],
)
def test_a_token_costs_keys_and_values_of_every_head(group: LayerGroup, dtype: KvDtype, expected: int) -> None:
    assert token_bytes(group, dtype) == expected


def test_only_layers_that_keep_every_token_count_for_decode_attention() -> None:
    twelve = LayerGroup(kind="full", layers=12, kv_heads=8, head_dim=64)
    assert bytes_per_token(model(twelve, WINDOWS), "bf16") == 24576
    assert bytes_per_token(model(twelve, WINDOWS), "fp8", ("sliding_window",)) == 12288


def test_layers_skipped_by_number_stay_at_two_bytes() -> None:
    assert bytes_per_token(model(FULL), "fp8", ("0", "31")) == 30 * 2048 + 2 * 4096


@pytest.mark.parametrize(("skip", "message"), [(("first",), "cannot skip layers first"), (("3",), "by number")])
def test_a_layer_that_cannot_be_skipped_is_refused(skip: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        bytes_per_token(model(FULL, WINDOWS), "fp8", skip)


def test_a_latent_format_is_refused_for_plain_attention() -> None:
    with pytest.raises(ProfileError, match="MLA latents only"):
        token_bytes(FULL, "fp8_ds_mla")
