"""One table of KV formats and arms, which everything else reads."""

from typing import get_args

from agentload.model.kv import FORMATS, LABELS, RECIPES, USUAL, KvDtype


def test_every_dtype_has_its_row() -> None:
    assert tuple(FORMATS) == get_args(KvDtype)


def test_a_recipe_says_its_flags_and_what_the_server_must_say() -> None:
    told = {each.arm: (each.flags, dict(each.expect)) for each in RECIPES}
    assert told["bf16"] == (
        ("--kv-cache-dtype", "bfloat16"),
        {"kv_cache_dtype": "bfloat16", "prefix_caching": True},
    )
    assert told["fp8-skip-sw"] == (
        ("--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "sliding_window"),
        {"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"], "prefix_caching": True},
    )
    assert told["bf16-same-backend"] == (
        ("--kv-cache-dtype", "bfloat16", "--attention-backend", "FLASHINFER"),
        {"kv_cache_dtype": "bfloat16", "backend": "FLASHINFER", "prefix_caching": True},
    )


def test_the_usual_arms_have_labels() -> None:
    assert [(each.arm, LABELS[each.arm]) for each in USUAL] == [
        ("bf16", "BF16"),
        ("fp8", "FP8"),
        ("fp8-skip-sw", "FP8 skip-SW"),
    ]
