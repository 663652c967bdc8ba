from __future__ import annotations

import json

import pytest

from agentload.errors import GateError
from tests.cli.verbs import agentload

pytestmark = pytest.mark.loopback


def test_a_prefix_cache_that_works_answers_the_second_of_two_equal_prompts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agentload("probe --endpoints emulated:llama-3.1-8b-h100/bf16+fp8 --prompts 2 --gate --json")
    found = json.loads(capsys.readouterr().out)
    assert [
        (
            each["arm"],
            each["verdict"],
            each["prompt_tokens"],
            each["cached_tokens"],
            each["counted_hits"],
        )
        for each in found["reuse"]
    ] == [("bf16", "hit", 2048, 2032, 2032.0), ("fp8", "hit", 2048, 2032, 2032.0)]
    assert [(each["arm"], each["verdict"]) for each in found["crossed"]] == [("fp8", "no hit")]
    assert (found["reference"], found["caveats"]) == ("bf16", [])
    assert [(each["arm"], each["prompts"], each["failed"]) for each in found["agreement"]] == [
        ("fp8", 2, 0)
    ]


def test_a_prompt_that_is_too_short_for_one_block_is_no_hit_and_fails_the_gate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(GateError, match="no prefix reuse on bf16"):
        agentload("probe --endpoints emulated:llama-3.1-8b-h100/bf16 --tokens 8 --prompts 1 --gate")
    said = capsys.readouterr()
    assert "no hit" in said.out
    assert "a prompt of 8 tokens may be no whole block" in said.err
