from __future__ import annotations

from agentload.kvmath.compare import LayerSize, cautions, layer_sizes, shard, sizes
from agentload.kvmath.pool import GIB
from agentload.model.profile import LayerGroup, ModelShape

PLAIN = ModelShape(
    name="plain", groups=(LayerGroup(kind="full", layers=4, kv_heads=2, head_dim=64),), max_len=8192
)
WINDOWED = ModelShape(
    name="windowed",
    groups=(
        LayerGroup(kind="sliding", layers=5, kv_heads=2, head_dim=64, window=512),
        LayerGroup(kind="full", layers=1, kv_heads=2, head_dim=64),
    ),
    max_len=8192,
)


def test_a_model_without_windows_has_two_configurations_and_one_with_windows_three() -> None:
    # Figures that vLLM 0.32.0 reported for these shapes at 1 GiB.
    plain = sizes(PLAIN, GIB, max_model_len=8192, in_flight=2048, block_tokens=128)
    assert [(each.arm, each.pool_tokens, each.against_first) for each in plain] == [
        ("bf16", 524_288, 1.0),
        ("fp8", 1_048_576, 2.0),
    ]
    windowed = sizes(WINDOWED, GIB, max_model_len=8192, in_flight=2048, block_tokens=128)
    assert [(each.arm, each.pool_tokens) for each in windowed] == [
        ("bf16", 794_187),
        ("fp8", 1_588_375),
        ("fp8-skip-sw", 979_691),
    ]


def test_a_pool_that_holds_no_request_has_no_size() -> None:
    assert {
        each.pool_tokens for each in sizes(PLAIN, 1 << 20, max_model_len=8192, in_flight=2048)
    } == {None}


def test_ranks_share_heads_until_each_has_one() -> None:
    assert [shard(PLAIN, ranks).groups[0].kv_heads for ranks in (1, 2, 4)] == [2, 1, 1]


def test_ranks_share_states_too_and_keep_latents_whole() -> None:
    hybrid = ModelShape(
        name="h",
        groups=(
            LayerGroup(kind="mla", layers=1, head_dim=576),
            LayerGroup(kind="mamba", layers=3, state_bytes=2_146_304),
        ),
        max_len=8,
    )
    assert [(group.kv_heads, group.state_bytes) for group in shard(hybrid, 2).groups] == [
        (1, 0),
        (1, 1_073_152),
    ]


def test_each_kind_of_layer_has_a_page_of_its_own() -> None:
    state = LayerGroup(kind="mamba", layers=3, state_bytes=2_146_304)
    assert layer_sizes(
        ModelShape(name="m", groups=(*WINDOWED.groups, state), max_len=8), block_tokens=32
    ) == (
        LayerSize(kind="sliding 512", layers=5, token_bytes=(512, 256), page_bytes=(16_384, 8_192)),
        LayerSize(kind="full", layers=1, token_bytes=(512, 256), page_bytes=(16_384, 8_192)),
        LayerSize(kind="mamba", layers=3, token_bytes=(0, 0), page_bytes=(2_146_304, 2_146_304)),
    )


def test_wide_heads_and_windows_are_told() -> None:
    wide = ModelShape(
        name="w",
        groups=(LayerGroup(kind="full", layers=1, head_dim=512), *WINDOWED.groups[:1]),
        max_len=8,
    )
    assert [note.split(":")[0] for note in cautions(wide)] == [
        "heads of 512",
        "windows of 512 tokens",
    ]
    assert cautions(PLAIN) == ()
