"""What the arms file says of hardware, and what the machine
said of its power, reach the advisor without a profile.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.evidence import Evidence
from advisor.gates import compute_floor, throttled
from advisor.policy import Policy
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.kvmath.config import model_shape
from agentload.model.profile import Price
from agentload.model.rows import CallRow, SampleRow
from tests.evidence.runs import ARMS, S, arm, fingerprint, leg, pair_of_blocks, run, stored

LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
SHAPE = json.dumps(asdict(model_shape(LLAMA, name="llama")))


def found(
    folder: Path,
    rows: Iterable[object],
    *,
    price: Price | None = None,
    kind: str = "measured",
    **hardware: object,
) -> Evidence:
    before = [
        replace(run(), kind=kind),  # type: ignore[arg-type]
        leg(),
        *(arm(name, place, **hardware) for place, name in enumerate(ARMS)),
    ]
    with stored(folder, [*before, *rows], described=False) as connection:
        return gather(connection, run_view(connection, "r1"), price=price)


def power(name: str, at_s: float, watts: float, gpu: str = "0") -> SampleRow:
    labels = json.dumps({"gpu": gpu})
    return SampleRow(
        run_id="r1",
        leg=1,
        arm=name,
        at_ns=round(at_s * S),
        name="gpu_power_w",
        value=watts,
        labels=labels,
    )


def test_the_arms_file_and_the_models_config_stand_in_for_a_profile(tmp_path: Path) -> None:
    rows = [
        fingerprint("bf16", kv_cache_dtype="auto"),
        fingerprint("fp8", kv_cache_dtype="fp8"),
        *pair_of_blocks(),
    ]
    evidence = found(
        tmp_path,
        rows,
        gpu="NVIDIA-H100-80GB-HBM3",
        gpus=4,
        tensor_parallel=2,
        data_parallel=2,
        usd_per_gpu_hour=2.5,
        shape=SHAPE,
    )
    shared, gpu, model = evidence.deployment, evidence.deployment.gpu, evidence.model
    assert (shared.tensor_parallel, shared.gpus_per_replica) == (2, 4)
    assert (gpu.name, gpu.hbm_tb_s, gpu.bf16_tflops, gpu.sm, gpu.usd_per_hour) == (
        "H100-SXM",
        3.35,
        989,
        90,
        2.5,
    )
    assert (model.layers, model.heads, model.kv_heads, model.head_dim, model.weight_bits) == (
        32,
        32,
        8,
        128,
        16,
    )
    assert model.active_params == pytest.approx(6.98e9, rel=1e-3)
    assert (evidence.arm("bf16").kv_bytes_per_token, evidence.arm("fp8").kv_bytes_per_token) == (
        131072,
        65536,
    )


def test_a_policys_price_wins_over_the_arms_files(tmp_path: Path) -> None:
    evidence = found(
        tmp_path,
        pair_of_blocks(),
        price=Price(usd_per_gpu_hour=9.0, source="ours"),
        usd_per_gpu_hour=2.5,
    )
    assert evidence.deployment.gpu.usd_per_hour == 9.0


def test_what_the_server_says_of_its_ranks_counts_where_the_arms_file_is_silent(
    tmp_path: Path,
) -> None:
    told = {"tensor_parallel": 4, "data_parallel": 2, "quantization": "fp8"}
    evidence = found(tmp_path, [fingerprint("bf16", settings=told), *pair_of_blocks()], shape=SHAPE)
    assert (
        evidence.deployment.tensor_parallel,
        evidence.deployment.gpus_per_replica,
        evidence.model.weight_bits,
    ) == (4, 8, 8)
    assert [evidence.gpus(arm) for arm in ("bf16", "fp8")] == [8, 8]


def test_arms_that_are_split_differently_have_gpus_of_their_own(tmp_path: Path) -> None:
    rows = [
        fingerprint("bf16", settings={"tensor_parallel": 1}),
        fingerprint("fp8", settings={"tensor_parallel": 2}),
        *pair_of_blocks(),
    ]
    evidence = found(tmp_path, rows)
    assert [evidence.gpus(arm) for arm in ("bf16", "fp8")] == [1, 2]


def test_power_is_the_mean_of_each_gpu_while_the_arm_was_played_added_up(tmp_path: Path) -> None:
    rows = [
        *pair_of_blocks(),
        *(
            power("bf16", at, watts, gpu)
            for at, watts, gpu in ((10, 300, "0"), (60, 500, "0"), (10, 600, "1"), (60, 600, "1"))
        ),
        power("bf16", 250, 60),  # the other arm plays
        power("bf16", 250, 60, "1"),
    ]
    server = dict(found(tmp_path, rows, gpus=2).server)
    assert (server["bf16"].watts, server["fp8"].watts) == (1000.0, None)


def test_power_is_the_same_to_the_last_bit_in_whatever_order_it_was_sampled(tmp_path: Path) -> None:
    watts = [0.1, 0.2, 0.3]
    drawn = []
    for name, order in (("there", watts), ("back", watts[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        rows = [power("bf16", 10 + at, each) for at, each in enumerate(order)]
        server = dict(found(folder, [*pair_of_blocks(), *rows]).server)
        drawn.append(server["bf16"].watts)
    assert drawn[0] == drawn[1]


def test_power_that_is_absent_or_another_arms_too_is_said_and_not_zero(tmp_path: Path) -> None:
    rows = [*pair_of_blocks(), power("bf16", 10, 300, "0"), power("bf16", 10, 300, "1")]
    evidence = found(tmp_path, rows)
    assert {name: figures.watts for name, figures in evidence.server} == {"bf16": None, "fp8": None}
    assert (
        "bf16: the power of 2 GPUs was sampled where it has 1: set gpus, or its gpu_ids"
        in evidence.notes
    )
    assert any(note.startswith("no GPU power was sampled on fp8") for note in evidence.notes)


def test_the_power_of_a_split_gpu_is_nobodys_alone(tmp_path: Path) -> None:
    whole = SampleRow(
        run_id="r1",
        leg=1,
        arm="bf16",
        at_ns=10 * S,
        name="gpu_power_w",
        value=300.0,
        labels='{"gpu": "0", "mig": "all"}',
    )
    evidence = found(tmp_path, [*pair_of_blocks(), whole])
    assert dict(evidence.server)["bf16"].watts is None
    assert (
        "bf16: its GPU is split (MIG), and the draw of one part is not reported: energy is "
        "not known"
    ) in evidence.notes


def reasons(name: str, at_s: float, bits: int, gpu: str = "0") -> SampleRow:
    return replace(power(name, at_s, float(bits), gpu), name="gpu_throttle_reasons")


def test_a_gpu_is_slowed_by_heat_or_a_brake_and_not_by_idling_and_the_slowest_counts(
    tmp_path: Path,
) -> None:
    rows = [
        *pair_of_blocks(),
        *(
            reasons("bf16", at, bits, "0")
            for at, bits in ((10, 0), (30, 0x1), (60, 0x4), (90, 0x4 | 0x20))
        ),
        *(
            reasons("bf16", at, bits, "1")
            for at, bits in ((10, 0x40), (30, 0x1), (60, 0x8), (90, 0))
        ),
        reasons("bf16", 250, 0x40),  # the other arm plays
        *(
            replace(power("bf16", at, mhz, gpu), name="gpu_clock_mhz")
            for gpu, mhz in (("0", 1980.0), ("1", 1500.0))
            for at in (10, 30, 60)
        ),
        replace(power("bf16", 250, 200.0, "1"), name="gpu_clock_mhz"),
    ]
    evidence = found(tmp_path, rows)
    server = dict(evidence.server)
    assert (server["bf16"].throttled_share, server["bf16"].power_capped_share) == (0.5, 0.5)
    assert (server["fp8"].throttled_share, server["fp8"].power_capped_share) == (None, None)
    assert (server["bf16"].clock_mhz, server["fp8"].clock_mhz) == (1500.0, None)
    assert [(gate.arm, gate.status) for gate in throttled.check(evidence, Policy())] == [
        ("bf16", "fail")
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, 9223372036854775794.0])
def test_a_figure_that_a_gpu_did_not_know_ends_no_report(tmp_path: Path, value: float) -> None:
    odd = [
        replace(reasons("bf16", 10, 0), value=value),
        replace(power("bf16", 10, value), name="gpu_clock_mhz"),
    ]
    server = dict(found(tmp_path, [*pair_of_blocks(), *odd, reasons("bf16", 30, 0x40)]).server)
    assert server["bf16"].throttled_share == 1.0


WINDOWED = json.dumps(
    asdict(
        model_shape(
            LLAMA | {"model_type": "mistral", "sliding_window": 4096, "head_dim": 128},
            name="mistral",
        )
    )
)


@pytest.mark.parametrize(("shape", "pool"), [(SHAPE, 434_784.0), (WINDOWED, None), (None, None)])
def test_blocks_of_an_older_server_are_tokens_only_where_every_layer_keeps_all_of_them(
    tmp_path: Path, shape: str | None, pool: float | None
) -> None:
    evidence = found(
        tmp_path,
        [fingerprint("bf16", block_size="16", pool_blocks="27174"), *pair_of_blocks()],
        shape=shape,
    )
    assert evidence.arm("bf16").pool_tokens == pool


def test_an_emulated_run_has_no_gpu_to_miss(tmp_path: Path) -> None:
    assert not any(
        "GPU power" in note for note in found(tmp_path, pair_of_blocks(), kind="emulated").notes
    )


def test_gpus_that_differ_or_are_not_known_are_told(tmp_path: Path) -> None:
    rows = [arm("bf16", 0, gpu="H100"), arm("fp8", 1, gpu="TPU v6"), *pair_of_blocks()]
    with stored(tmp_path, [run(), leg(), *rows], described=False) as connection:
        notes = gather(connection, run_view(connection, "r1")).notes
    assert "arms run on different GPUs: bf16 on 1 × H100, fp8 on 1 × TPU v6" in notes
    assert "the peaks of 'TPU v6' are not known: its figures are not compared with them" in notes


def test_a_measured_runs_gates_hold_it_against_physics_without_a_profile(tmp_path: Path) -> None:
    """8,000 tokens in 110 ms take 1.2 PFLOP/s: more than one H100 has, less than two."""
    fast = [
        replace(row, prompt_tokens=8000, cached_tokens=0) if isinstance(row, CallRow) else row
        for row in pair_of_blocks()
    ]
    for gpus, status in ((1, "fail"), (2, "pass")):
        folder = tmp_path / str(gpus)
        folder.mkdir()
        evidence = found(
            folder,
            [fingerprint("bf16", kv_cache_dtype="auto"), *fast],
            gpu="H100",
            tensor_parallel=gpus,
            shape=SHAPE,
        )
        assert {
            gate.status for gate in compute_floor.check(evidence, Policy()) if gate.arm == "bf16"
        } == {status}


def test_two_versions_of_flash_attention_are_two_kernels(tmp_path: Path) -> None:
    rows = [
        fingerprint("bf16", attention_backend="FLASH_ATTN", flash_version=3),
        fingerprint("fp8", attention_backend="FLASHINFER", flash_version=3),
        *pair_of_blocks(),
    ]
    assert [each.kernel for each in found(tmp_path, rows).arms] == ["FLASH_ATTN(FA3)", "FLASHINFER"]


PLAIN = {"weights": "org/m"}
QUANTISED = {"weights": "org/m", "quantization": "compressed-tensors"}
AT_ONE = "Using KV cache scaling factor 1.0 for fp8_e4m3."
QUERIES = "Using uncalibrated q_scale 1.0"


@pytest.mark.parametrize(
    ("facts", "scales"),
    [
        ({"kv_cache_dtype": "bfloat16", "settings": PLAIN}, None),
        ({"kv_cache_dtype": "fp8_per_token_head", "settings": PLAIN}, "dynamic"),
        ({"kv_cache_dtype": "fp8", "settings": PLAIN}, "default"),
        ({"kv_cache_dtype": "fp8", "settings": QUANTISED, "warnings": [AT_ONE]}, "default"),
        ({"kv_cache_dtype": "fp8", "settings": QUANTISED, "warnings": [QUERIES]}, "calibrated"),
        # Its log was not read: the warning may be there.
        ({"kv_cache_dtype": "fp8", "settings": QUANTISED}, None),
        ({"kv_cache_dtype": "fp8"}, None),
    ],
)
def test_scales_are_what_the_weights_bring_and_the_log_does_not_miss(
    tmp_path: Path, facts: dict[str, Any], scales: str | None
) -> None:
    assert (
        found(tmp_path, [fingerprint("fp8", **facts), *pair_of_blocks()]).arm("fp8").scales
        == scales
    )


def test_an_arms_flags_are_what_its_server_was_started_with_beside_what_other_facts_say(
    tmp_path: Path,
) -> None:
    told = {
        "--model": ["./models/l"],
        "--kv-cache-dtype": ["fp8"],
        "--enable-sleep-mode": [],
        "--max-num-seqs": ["64"],
    }
    shown = {
        "weights": "org/calibrated",
        "eager": "True",
        "max_num_seqs": 128,
        "attention_backend": None,
    }
    rows = [
        fingerprint("bf16", arguments=told),
        fingerprint("fp8", settings=shown),
        *pair_of_blocks(),
    ]
    bf16, fp8 = found(tmp_path, rows).arms
    assert (bf16.weights, bf16.flags, bf16.all_flags) == (
        "./models/l",
        ("--enable-sleep-mode", "--max-num-seqs", "64"),
        True,
    )
    assert (fp8.weights, fp8.flags, fp8.all_flags) == (
        "org/calibrated",
        ("--enforce-eager", "--max-num-seqs", "128"),
        False,
    )
