from __future__ import annotations

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.layout import BlockTable, Layout, bytes_per_token, layout, token_bytes
from agentload.model.kv import KvDtype
from agentload.model.profile import LayerGroup, ModelShape

FULL = LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128)
WINDOWS = LayerGroup(kind="sliding", layers=12, kv_heads=8, head_dim=64, window=128)
MLA = LayerGroup(kind="mla", layers=61, head_dim=576)
HEAD_256 = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=256)
HEAD_512 = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=512)


def model(*groups: LayerGroup) -> ModelShape:
    return ModelShape(name="m", groups=groups, heads=32, max_len=131072)


def full(layers: int, head_dim: int = 128) -> LayerGroup:
    return LayerGroup(kind="full", layers=layers, kv_heads=2, head_dim=head_dim)


def sliding(layers: int, head_dim: int = 128) -> LayerGroup:
    return LayerGroup(kind="sliding", layers=layers, kv_heads=2, head_dim=head_dim, window=1024)


def test_layers_that_all_keep_every_token_share_one_table() -> None:
    assert layout(model(full(32)), "bf16") == Layout(
        page_bytes=32 * 16 * 1024, tables=(BlockTable(kind="full", count=1, block_tokens=16),)
    )


def test_a_mixture_is_cut_into_groups_of_the_smaller_kind_with_the_rest_padded() -> None:
    # Gemma 3 27B: 52 windowed layers beside 10 full ones make
    # 6 tables of 10, the last of which is mostly padding.
    cut = layout(model(full(10), sliding(52)), "bf16")
    assert [(table.kind, table.count) for table in cut.tables] == [("full", 1), ("sliding", 6)]
    assert cut.page_bytes == 10 * 16 * 1024


def test_nearly_equal_kinds_are_padded_to_the_larger() -> None:
    cut = layout(model(full(13), sliding(12)), "bf16")
    assert ([table.count for table in cut.tables], cut.page_bytes) == ([1, 1], 13 * 16 * 1024)


def test_skipping_windows_doubles_the_block_of_the_others() -> None:
    cut = layout(model(full(1), sliding(5)), "fp8", skip_layers=("sliding_window",))
    assert [(table.kind, table.block_tokens) for table in cut.tables] == [
        ("full", 32),
        ("sliding", 16),
    ]
    assert (cut.block_tokens, cut.pages_per_block, cut.fixed_pages) == (32, 1, 5 * 65)


def test_a_page_that_does_not_divide_is_padded() -> None:
    cut = layout(model(full(4, head_dim=192), sliding(4, head_dim=128)), "bf16")
    assert ([table.block_tokens for table in cut.tables], cut.page_bytes) == (
        [16, 16],
        4 * 16 * 2 * 2 * 192 * 2,
    )


# Geometry of Qwen3-Next: 12 full layers, 36 with a fixed state of 2.1 MB.
HYBRID = model(
    LayerGroup(kind="full", layers=12, kv_heads=2, head_dim=256),
    LayerGroup(kind="mamba", layers=36, state_bytes=2_146_304),
)


def test_the_attention_block_of_a_hybrid_grows_until_a_page_holds_a_state() -> None:
    assert [
        (table.kind, table.count, table.block_tokens) for table in layout(HYBRID, "bf16").tables
    ] == [("full", 1, 1056), ("mamba", 3, 1056)]


def test_a_hybrid_gains_nothing_from_fp8_at_short_context_and_less_than_double_at_long() -> None:
    bf16, fp8 = layout(HYBRID, "bf16"), layout(HYBRID, "fp8")
    gain = {
        tokens: bf16.peak_pages(tokens, 2048) / fp8.peak_pages(tokens, 2048)
        for tokens in (1000, 32768, 262144)
    }
    assert fp8.page_bytes == pytest.approx(bf16.page_bytes, rel=0.01)
    # Measured on such hybrids: 1.00 short, 1.70 to 1.84 around
    # 32k (vLLM issues 54426, 55196, pull request 55557).
    assert gain[1000] == 1.0
    assert 1.6 < gain[32768] < 1.9 < gain[262144] < 2.0


def test_chunked_attention_holds_its_chunk_and_what_is_in_flight() -> None:
    local = BlockTable(kind="chunked", count=1, block_tokens=16, window=8192)
    assert local.peak_pages(100_000, 2048, prefix_caching=True) == 640


def grouped(*groups: LayerGroup) -> ModelShape:
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
        (LayerGroup(kind="mamba", layers=3, state_bytes=1 << 21), "bf16", 0),
    ],
)
def test_a_token_costs_keys_and_values_of_every_head(
    group: LayerGroup, dtype: KvDtype, expected: int
) -> None:
    assert token_bytes(group, dtype) == expected


def test_only_layers_that_keep_every_token_count_for_decode_attention() -> None:
    twelve = LayerGroup(kind="full", layers=12, kv_heads=8, head_dim=64)
    assert bytes_per_token(grouped(twelve, WINDOWS), "bf16") == 24576
    assert bytes_per_token(grouped(twelve, WINDOWS), "fp8", ("sliding_window",)) == 12288


def test_layers_skipped_by_number_stay_at_two_bytes() -> None:
    assert bytes_per_token(grouped(FULL), "fp8", ("0", "31")) == 30 * 2048 + 2 * 4096


@pytest.mark.parametrize(
    ("skip", "message"), [(("first",), "cannot skip layers first"), (("3",), "by number")]
)
def test_a_layer_that_cannot_be_skipped_is_refused(skip: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        bytes_per_token(grouped(FULL, WINDOWS), "fp8", skip)


def test_a_latent_format_is_refused_for_plain_attention() -> None:
    with pytest.raises(ProfileError, match="MLA latents only"):
        token_bytes(FULL, "fp8_ds_mla")
