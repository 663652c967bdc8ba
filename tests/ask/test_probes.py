from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.ask.agree import Agreement
from agentload.ask.probes import Probed, short, sixteen_bit
from agentload.ask.reuse import Reuse


@pytest.mark.parametrize(
    ("dtypes", "place"),
    [(("fp8", "bfloat16"), 1), (("fp8_e4m3", "auto", "bfloat16"), 1), (("fp8", None), None), (("fp8", "fp8"), None)],
)
def test_answers_are_held_against_the_first_arm_whose_cache_has_sixteen_bits(dtypes: tuple[str | None, ...], place: int | None) -> None:
    assert sixteen_bit([{"kv_cache_dtype": dtype} for dtype in dtypes]) == place


FINE = Probed(
    reuse=(Reuse(arm="a", verdict="hit"), Reuse(arm="b", verdict="not told"), Reuse(arm="c", verdict="off")),
    crossed=(Reuse(arm="b", verdict="no hit"), Reuse(arm="c", verdict="off")),
    reference="a",
    agreement=(Agreement(arm="b", prompts=8, first_token=7, whole=2, failed=0),),
    mismatches=(),
    caveats=("b: no metrics",),
)


@pytest.mark.parametrize(
    ("found", "troubles"),
    [
        (FINE, ()),
        (replace(FINE, mismatches=("b: kv_cache_dtype: expected fp8",)), ("b: kv_cache_dtype: expected fp8",)),
        (replace(FINE, reuse=(Reuse(arm="a", verdict="no hit"), Reuse(arm="b", verdict="failed"))), ("no prefix reuse on a, b",)),
        (replace(FINE, crossed=(Reuse(arm="b", verdict="hit"),)), ("b answers from another arm's cache",)),
        (replace(FINE, agreement=(replace(FINE.agreement[0], wrong="garbage"),)), ("b: garbage",)),
        (replace(FINE, agreement=(replace(FINE.agreement[0], prompts=0, failed=8),)), ("b: no prompt was answered",)),
    ],
)
def test_whatever_unfits_arms_for_a_comparison_is_a_trouble(found: Probed, troubles: tuple[str, ...]) -> None:
    assert tuple(found.troubles()) == troubles


def test_a_prompt_that_may_be_no_whole_block_is_said() -> None:
    assert list(short(2048)) == []
    assert list(short(30)) == ["a prompt of 30 tokens may be no whole block of a cache: take 2,048 or more"]
