from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agentload.builtin import find, names
from agentload.emulator.profile import arm, parse, read, step_time, text
from agentload.emulator.steptime import StepClock, decode_s
from agentload.errors import ProfileError
from agentload.kvmath.pool import pool_of
from agentload.model.profile import (
    Accuracy,
    ArmProfile,
    Gpu,
    LayerGroup,
    ModelShape,
    Noise,
    Price,
    Profile,
    Provenance,
    Server,
    Source,
    StepTime,
)
from tests.emulator.arms import shipped

FILE = """
title: A test
sources: [{key: us, title: We measured it, where: here}]
provenance: {published: a, fitted: b, predicted: c, assumed: d, extrapolates: e}
gpu: {name: G, memory_gib: 80, bandwidth_tb_s: 3.35, bf16_tflops: 989, compute_capability: 90}
model:
  name: m
  heads: 32
  max_len: 4096
  weight_gib: 15
  groups: [{kind: full, layers: 32, kv_heads: 8, head_dim: 128}]
server: {software: vLLM 0.19.1, max_model_len: 4096}
step: {prefill_ms_per_token: 0.02, weights_ms: 5, prefill_ms_per_pair: 1e-7}
price: {usd_per_gpu_hour: 2, source: us}
arms:
  bf16:
    kv_dtype: bf16
    step: {decode_ms: 6.44, decode_ms_per_token: 4.37e-5}
  fp8:
    kv_dtype: fp8
    step: {decode_ms: 6.58, decode_ms_per_token: 2.37e-5, prefill_ms_per_pair: 9e-8}
    noise: {sigma: 0.01}
    server: {max_num_seqs: 8}
    accuracy: [{task: niah, percent: 89.2, context_tokens: 128000, source: us}]
"""
GPU = Gpu(name="G", memory_gib=80, bandwidth_tb_s=3.35, bf16_tflops=989, compute_capability=90)
MODEL = ModelShape(
    name="m",
    heads=32,
    max_len=4096,
    weight_gib=15,
    groups=(LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128),),
)
SERVER = Server(software="vLLM 0.19.1", max_model_len=4096)
BF16 = ArmProfile(
    name="bf16",
    profile="test",
    gpu=GPU,
    model=MODEL,
    server=SERVER,
    kv_dtype="bf16",
    step=StepTime(
        decode_ms=6.44,
        decode_ms_per_token=4.37e-5,
        prefill_ms_per_token=0.02,
        prefill_ms_per_pair=1e-7,
        weights_ms=5,
    ),
)


def test_arms_share_sections_and_override_single_fields() -> None:
    assert BF16.step
    fp8 = replace(
        BF16,
        name="fp8",
        kv_dtype="fp8",
        server=replace(SERVER, max_num_seqs=8),
        step=replace(
            BF16.step, decode_ms=6.58, decode_ms_per_token=2.37e-5, prefill_ms_per_pair=9e-8
        ),
        noise=Noise(sigma=0.01),
        accuracy=(Accuracy(task="niah", percent=89.2, context_tokens=128000, source="us"),),
    )
    assert parse(FILE, name="test") == Profile(
        name="test",
        title="A test",
        sources=(Source(key="us", title="We measured it", where="here"),),
        provenance=Provenance(
            published="a", fitted="b", predicted="c", assumed="d", extrapolates="e"
        ),
        arms=(BF16, fp8),
        price=Price(usd_per_gpu_hour=2, source="us"),
    )


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("decode_ms: 6.44, ", "", "arms.bf16.step: Object missing required field `decode_ms`"),
        (
            "weights_ms: 5",
            "weights_ms: -5",
            "arms.bf16.step.weights_ms: Expected `float` >= 0.0, got -5",
        ),
        (
            "decode_ms: 6.58",
            "decode_ms: fast",
            "arms.fp8.step.decode_ms: Expected `float`, got 'fast'",
        ),
        (
            "decode_ms: 6.58",
            "decode_mss: 6.58",
            "arms.fp8.step.decode_mss: no such field: there are batch8_attention, ",
        ),
        (
            "kv_dtype: fp8",
            "kv_dtype: fp7",
            "arms.fp8.kv_dtype: Expected one of auto, bf16, fp16, fp8, ",
        ),
        (
            "percent: 89.2",
            "percent: 189",
            "arms.fp8.accuracy[0].percent: Expected `float` <= 100.0, got 189",
        ),
        (
            "percent: 89.2",
            "depth: [0.5], percent: 89.2",
            "arms.fp8.accuracy[0].depth: two numbers, the smaller one first",
        ),
        ("layers: 32", "layers: 0", "model.groups[0].layers: Expected `int` >= 1, got 0"),
        ("heads: 32", "heads: 3.2", "model.heads: Expected `int | null`, got 3.2"),
        (
            "max_model_len: 4096",
            "max_model_len: 9000",
            "arms.bf16.server.max_model_len: more than the model's 4096",
        ),
        (
            "title: A test",
            "titel: A test",
            "titel: no such field: there are arms, encoder, gpu, logprobs, model, noise, price, ",
        ),
        ("title: A test", "title: 7", "title: Expected `str`, got 7"),
        ("sources: [", "sources: &x [", None),
        ("gpu: {", "gpu: [", "not YAML: "),
        ("arms:\n  bf16:\n", "arms:\n  bf16: 3\n  x:\n", "arms.bf16: Expected a mapping, got 3"),
        ("sigma: 0.01", "sigma: true", "arms.fp8.noise.sigma: Expected `float`, got True"),
        ("sources: [{", "sources: {", "not YAML: "),
    ],
)
def test_a_bad_profile_is_refused_with_file_place_and_expectation(
    old: str, new: str, complaint: str | None
) -> None:
    assert old in FILE
    text = FILE.replace(old, new, 1)
    if complaint is None:
        parse(text, name="test")
        return
    with pytest.raises(ProfileError) as caught:
        parse(text, name="test")
    assert re.match(rf"profile test(:\d+)?: {re.escape(complaint)}", caught.value.message)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "arms: {}", "3"])
def test_what_is_no_profile_at_all_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="profile test: "):
        parse(text, name="test")


def test_the_hint_for_a_bad_profile_can_be_typed_wherever_its_file_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("arms: 3", encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        read(str(path))
    assert caught.value.hint == f"fix it, then `agentload profile show {path}`"


def test_an_unknown_arm_is_refused_with_those_that_exist() -> None:
    profile = parse(FILE, name="test")
    assert arm(profile, "fp8").name == "fp8"
    with pytest.raises(ProfileError) as caught:
        arm(profile, "fp-8")
    assert caught.value.message == "profile test has no arm 'fp-8': it has bf16, fp8"
    assert caught.value.hint == "did you mean test/fp8?"


def test_a_latency_that_nobody_published_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"qwen3-30b-a3b-accuracy/fp8 has accuracy only"):
        step_time(
            arm(
                parse(
                    find("profiles", "qwen3-30b-a3b-accuracy").read_text(),
                    name="qwen3-30b-a3b-accuracy",
                ),
                "fp8",
            )
        )


UNMEASURED = {
    "fp8-calibrated",
    "fp8-default-scales",
    "fp8-e5m2",
    "bf16-drafts",
    "fp8-drafts",
    "bf16-offload",
    "fp8-offload",
    "llama-3.1-8b-rtx-pro-6000/fp8",
}


def test_priors_follow_from_the_profile_that_they_are_derived_from() -> None:
    base, weights, rocm = (
        arm(parse(find("profiles", name).read_text(), name=name), "bf16")
        for name in (
            "llama-3.1-8b-h100",
            "llama-3.1-8b-fp8-weights-h100-prior",
            "llama-3.1-8b-mi300x-prior",
        )
    )
    assert base.step is not None
    assert weights.step is not None
    assert rocm.step is not None
    table = 128_256 * 4_096
    assert weights.model.weight_gib == pytest.approx((6.98e9 + 4 * table) / 2**30, abs=0.01)
    read_ms = (6.98e9 + 2 * table) / 3e12 * 1e3
    assert weights.step.weights_ms == pytest.approx(read_ms, abs=0.01)
    saved_ms = base.step.weights_ms - weights.step.weights_ms
    assert base.step.decode_ms - weights.step.decode_ms == pytest.approx(saved_ms, abs=0.01)
    for field, ratio in (
        ("weights_ms", 3.35 / 5.3),
        ("decode_ms_per_token", 3.35 / 5.3),
        ("prefill_ms_per_token", 989 / 1307),
        ("prefill_ms_per_pair", 989 / 1307),
    ):
        scaled = getattr(base.step, field) * ratio
        assert getattr(rocm.step, field) == pytest.approx(scaled, rel=0.01), field


@pytest.mark.parametrize(
    ("batch", "context", "measured_ms"),
    [
        (1, 1024, 12.817),
        (1, 8192, 13.940),
        (8, 1024, 13.976),
        (8, 8192, 22.267),
        (32, 1024, 18.560),
        (32, 8192, 51.617),
        (64, 1024, 24.036),
        (64, 8192, 89.622),
        (128, 1024, 34.771),
    ],
)
def test_decoding_steps_of_the_rtx_pro_6000_are_those_that_were_published(
    batch: int, context: int, measured_ms: float
) -> None:
    """Rows of `step.csv` of LLMServingSim's profile, which the profile was fitted to."""
    card = shipped("llama-3.1-8b-rtx-pro-6000", "bf16")
    assert decode_s(card, batch, context) * 1e3 == pytest.approx(measured_ms, rel=0.07)


def test_the_rtx_pro_6000_has_the_pool_and_the_prefill_that_were_published() -> None:
    card = shipped("llama-3.1-8b-rtx-pro-6000", "bf16")
    assert card.step is not None
    assert pool_of(card).tokens == pytest.approx(574_608, rel=0.002)
    clock = StepClock(step=card.step, experts=None, max_seqs=1)
    assert clock.mixed_ps(0, 0, 1024, 1024**2) / 1e9 == pytest.approx(47.937, rel=0.09)
    # 32 layers: their attention of 2,048 tokens after 8,192, and of 1,024 after 16,384.
    for tokens, cached, measured_ms in ((2048, 8192, 32 * 1.15227), (1024, 16384, 32 * 1.05661)):
        pairs = tokens * (cached + tokens / 2)
        assert card.step.prefill_ms_per_pair * pairs == pytest.approx(measured_ms, rel=0.03)


@pytest.mark.parametrize("name", names("profiles"))
def test_every_shipped_profile_parses_and_cites_known_sources(name: str) -> None:
    text = find("profiles", name).read_text()
    profile = parse(text, name=name)
    known = {source.key for source in profile.sources} | {"assumed"}
    cited = {score.source for each in profile.arms for score in each.accuracy}
    cited |= {load.source for each in profile.arms for load in each.load_tests}
    cited |= {slo.source for slo in profile.slos} | (
        {profile.price.source} if profile.price else set()
    )
    assert cited <= known
    assert [each.name for each in profile.arms] == list(yaml.safe_load(text)["arms"])
    for each in profile.arms:
        if each.step is not None:
            assert each.noise.sigma > 0
        if each.step is None:
            assert each.accuracy
        is_invented = not UNMEASURED.isdisjoint({each.name, f"{name}/{each.name}"})
        assert each.synthetic == (name.endswith("-prior") or is_invented)


@pytest.mark.parametrize("name", names("profiles"))
def test_a_profile_that_is_written_reads_back_the_same(name: str) -> None:
    profile = parse(find("profiles", name).read_text(), name=name)
    assert parse(text(profile), name=name) == profile
