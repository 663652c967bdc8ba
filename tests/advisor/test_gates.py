from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from advisor import gates, rulebook
from advisor.decide import decide
from advisor.evidence import AccuracyBucket, Calls, ClientHealth, Evidence, Telemetry
from advisor.gates import (
    answers_possible,
    bandwidth,
    client,
    compute_floor,
    dropped_turns,
    generated_length,
    identity,
    impossible_hits,
    limiter,
    pool_size,
    steady,
    throttled,
)
from advisor.policy import Policy
from tests.advisor.cases import BF16, FP8, bare, compared, observed, sweeps
from tests.advisor.published import ITL_MS, LLAMA_TTFT_LONG_MS, LLAMA_TTFT_SHORT_MS, plotted_sweep
from tests.advisor.worlds import Noise, simulated_calls


def _statuses(gate: ModuleType, evidence: Evidence) -> list[str]:
    return [each.status for each in gate.check(evidence, Policy())]


def _calls(**columns: object) -> tuple[Calls, Calls]:
    reference, arm = simulated_calls(
        np.random.default_rng(1), pairs=20, effect=0.0, noise=Noise(call=0.01, wander=0.01)
    )
    return reference, replace(arm, **columns)  # type: ignore[arg-type]  # a test names the column


def test_every_gate_is_found_by_its_file_name_and_explains_itself() -> None:
    found = rulebook.modules(gates)
    assert [each.__name__.rsplit(".", 1)[1] for each in found] == [
        "answers_possible",
        "bandwidth",
        "client",
        "compute_floor",
        "dropped_turns",
        "generated_length",
        "identity",
        "impossible_hits",
        "limiter",
        "no_trend",
        "one_mode",
        "pool_size",
        "steady",
        "throttled",
    ]
    assert all(str(each.__doc__).partition("\n\n")[0].strip().endswith(".") for each in found)


def test_the_published_prompts_up_to_16k_are_faster_than_the_gpu() -> None:
    points = LLAMA_TTFT_SHORT_MS
    sweep = plotted_sweep("fp8", dict.fromkeys(points, 6.6), points)
    floor = compute_floor.floor_ms(
        bare(),
        BF16,
        np.array(list(points), dtype=np.float64),
        np.array(list(points), dtype=np.float64),
    )
    assert floor is not None
    assert floor == pytest.approx(
        [67, 104, 142, 183, 320], rel=0.01
    )  # the floors that the post's own peak gives
    (gate,) = compute_floor.check(bare(sweeps=(sweep,)), Policy())
    assert (gate.status, gate.spoils) == ("fail", ("prefill sweep",))
    assert gate.message == (
        "TTFT of 15 ms for 4,096 computed tokens: the GPU's peak allows no less than 64 ms "
        "(5 of 5 calls); the prompts were cached, "
        "or the stamps are wrong"
    )


def test_the_published_prompts_from_32k_are_possible() -> None:
    points = LLAMA_TTFT_LONG_MS
    sweep = plotted_sweep("fp8", dict.fromkeys(points, 6.6), points)
    assert _statuses(compute_floor, bare(sweeps=(sweep,))) == ["pass"]


def test_a_hidden_cache_hit_in_a_workload_fails_the_compute_floor() -> None:
    reference, arm = _calls()
    cold = np.full(len(arm), 30_000.0)
    honest = replace(
        reference, computed_tokens=cold, prompt_tokens=cold, ttft_ms=np.full(len(arm), 1200.0)
    )
    hidden = replace(
        arm,
        computed_tokens=cold,
        prompt_tokens=cold,
        ttft_ms=np.where(np.arange(len(arm)) % 10 == 0, 60.0, 1200.0),
    )
    assert _statuses(compute_floor, bare(observations=observed(honest, hidden))) == ["pass", "fail"]


def test_without_model_or_peak_the_floor_is_not_observed() -> None:
    evidence = bare(sweeps=(plotted_sweep("fp8", {4096: 6.6}, {4096: 15.0}),))
    unknown = replace(evidence, model=replace(evidence.model, active_params=None))
    assert _statuses(compute_floor, unknown) == ["not observed"]


def test_published_slopes_stay_below_the_memory_and_half_a_slope_does_not() -> None:
    published = tuple(plotted_sweep(arm, ITL_MS["llama-h100", arm]) for arm in ("bf16", "fp8"))
    found = tuple(bandwidth.check(bare(sweeps=published), Policy()))
    assert [each.status for each in found] == ["pass", "pass"]
    assert [each.observed for each in found] == pytest.approx(
        [2.97, 2.64], rel=0.02
    )  # TB/s of 3.35, as the lines drawn in the figure
    lengths = {
        length: 6.3 + (value - 6.3) / 2 for length, value in ITL_MS["llama-h100", "bf16"].items()
    }
    assert _statuses(bandwidth, bare(sweeps=(plotted_sweep("bf16", lengths),))) == ["fail"]
    assert _statuses(
        bandwidth, bare(arms=(replace(BF16, kv_bytes_per_token=None), FP8), sweeps=published[:1])
    ) == ["not observed"]


def test_an_arm_that_stops_early_is_not_compared() -> None:
    short = _calls(output_tokens=np.full(600, 170.0))
    (_, gate) = generated_length.check(bare(observations=observed(*short)), Policy())
    assert (gate.status, gate.limit) == ("fail", 0.9)
    assert gate.observed == pytest.approx(170 / 201)
    asked = _calls(output_tokens=np.full(600, 170.0), asked_tokens=np.full(600, 170.0))
    assert _statuses(generated_length, bare(observations=observed(*asked))) == ["pass", "pass"]


@pytest.mark.parametrize(
    ("telemetry", "expected"),
    [
        (Telemetry(impossible_hits=0.0), ["pass"]),
        (Telemetry(impossible_hits=4096.0), ["fail"]),
        (Telemetry(hit_rate=0.81, ideal_hit_rate=0.84), ["pass"]),
        (Telemetry(hit_rate=0.9, ideal_hit_rate=0.84), ["fail"]),
        (Telemetry(hit_rate=0.51, ideal_hit_rate=0.5), ["pass"]),
        (Telemetry(hit_rate=0.5101, ideal_hit_rate=0.5), ["fail"]),
        (Telemetry(), []),
    ],
)
def test_hits_that_cannot_be_fail(telemetry: Telemetry, expected: list[str]) -> None:
    assert _statuses(impossible_hits, bare(server=(("fp8", telemetry),))) == expected


@pytest.mark.parametrize("ideal", [None, 0.6])
def test_a_server_that_counts_more_tokens_as_cached_than_were_asked_loses_its_hits_and_nothing_that_we_timed(
    ideal: float | None,
) -> None:
    telemetry = Telemetry(hit_rate=1.2, ideal_hit_rate=ideal)
    (gate,) = impossible_hits.check(bare(server=(("fp8", telemetry),)), Policy())
    assert (gate.status, gate.spoils, gate.observed, gate.limit) == ("fail", ("hits",), 1.2, 1.0)
    assert "120%" in gate.message


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (
            ClientHealth(send_lag_p99_ms=0.4, loop_stall_max_ms=12.0, coalesced_share=0.001),
            ["pass"],
        ),
        (ClientHealth(arm="fp8", send_lag_p99_ms=30.0), ["fail"]),
        (
            ClientHealth(send_lag_p99_ms=30.0, loop_stall_max_ms=900.0, coalesced_share=0.4),
            ["fail", "fail", "fail"],
        ),
        (ClientHealth(clock_steps=1.0), ["fail"]),
        (ClientHealth(clock_steps=0.0, dropped_share=0.005), ["pass"]),
        (ClientHealth(dropped_share=0.05), ["fail"]),
        (ClientHealth(), ["pass"]),
    ],
)
def test_a_client_that_falls_behind_fails(health: ClientHealth, expected: list[str]) -> None:
    assert _statuses(client, bare(health=(health,))) == expected


def test_the_arm_whose_requests_left_latest_comes_first_for_a_reason_quotes_the_first() -> None:
    lags = ((BF16.name, 20.2), (FP8.name, 59.1))
    health = tuple(ClientHealth(arm=arm, send_lag_p99_ms=lag) for arm, lag in lags)
    found = client.check(bare(health=(ClientHealth(arm="other"), *health)), Policy())
    assert [(each.arm, each.observed) for each in found] == [
        (FP8.name, 59.1),
        (BF16.name, 20.2),
        ("other", None),
    ]


def test_a_client_that_nobody_watched_is_not_healthy() -> None:
    assert _statuses(client, bare()) == ["not observed"]


def test_dropping_more_turns_than_the_reference_fails_either_way() -> None:
    few, many = np.ones(600, dtype=bool), np.ones(600, dtype=bool)
    few[:6], many[:60] = False, False
    assert _statuses(dropped_turns, bare(observations=observed(*_calls(ok=few)))) == ["pass"]
    assert _statuses(dropped_turns, bare(observations=observed(*_calls(ok=many)))) == ["fail"]
    for lost, drops in ((few, 0.01), (many, 0.10)):
        (gate,) = dropped_turns.check(bare(observations=observed(*_calls(ok=lost))), Policy())
        assert gate.limit == 0.02
        assert gate.observed == pytest.approx(drops)
        assert gate.message.endswith("cannot be compared" if drops > 0.05 else "on bf16")


def test_arms_that_both_drop_many_turns_are_compared_on_another_load_than_was_sent() -> None:
    many = np.ones(600, dtype=bool)
    many[:60] = False
    reference, arm = _calls(ok=many)
    (gate,) = dropped_turns.check(
        bare(observations=observed(replace(reference, ok=many), arm)), Policy()
    )
    assert (gate.status, gate.limit, "turn" in gate.spoils) == ("fail", 0.05, True)
    assert gate.message == (
        "10.0% of the turns dropped, 10.0% on bf16: what is left are the turns that are "
        "quick enough"
    )


def test_where_every_turn_was_dropped_nothing_is_left_that_could_be_quick() -> None:
    none = np.zeros(600, dtype=bool)
    reference, arm = _calls(ok=none)
    (alone,) = dropped_turns.check(bare(observations=observed(reference, arm)), Policy())
    (both,) = dropped_turns.check(
        bare(observations=observed(replace(reference, ok=none), arm)), Policy()
    )
    assert alone.message == "100.0% of the turns dropped, 0.0% on bf16: nothing is left to compare"
    assert both.message == "100.0% of the turns dropped, 100.0% on bf16: nothing is left to compare"


def _answered(*right: int, garbage: int | None = None) -> tuple[AccuracyBucket, ...]:
    return tuple(
        AccuracyBucket(
            arm="fp8",
            task="needle",
            context_tokens=8192.0 * 2**step,
            both=each,
            reference_only=0,
            arm_only=0,
            neither=100 - each,
            reference_garbage=garbage,
        )
        for step, each in enumerate(right)
    )


@pytest.mark.parametrize(
    ("buckets", "status", "spoils", "message"),
    [
        ((91, 80), "pass", (), "bf16 answers 86% right"),
        (
            (57, 3),
            "fail",
            (),
            (
                "bf16 answers 30% right, next to none of needle at 16k: what is asked there "
                "counts for nothing"
            ),
        ),
        ((76, 16), "pass", (), "bf16 answers 46% right"),  # as published for MRCR at 8k and 128k
        (
            (91, 5),
            "fail",
            (),
            (
                "bf16 answers 48% right, next to none of needle at 16k: what is asked there "
                "counts for nothing"
            ),
        ),
        (
            (0, 3),
            "fail",
            ("accuracy",),
            (
                "bf16 answers 2% right; 180 of 200 are garbage or were cut short: these "
                "questions cannot show a loss; give a thinking "
                "model room (--thinking), or ask easier tasks"
            ),
        ),
    ],
)
def test_a_reference_that_knows_next_to_nothing_can_lose_nothing(
    buckets: tuple[int, ...], status: str, spoils: tuple[str, ...], message: str
) -> None:
    (gate,) = answers_possible.check(
        bare(accuracy=_answered(*buckets, garbage=90 if spoils else None)), Policy()
    )
    assert (gate.status, gate.spoils, gate.message) == (status, spoils, message)


def test_nobody_is_asked_to_try_easier_questions_where_the_weights_are_random() -> None:
    told = bare(accuracy=_answered(0, 0))
    random = tuple(replace(arm, flags=("--load-format", "dummy")) for arm in told.arms)
    (gate,) = answers_possible.check(replace(told, arms=random), Policy())
    assert gate.message.endswith("cannot show a loss; the weights are random")


def test_an_arm_that_kept_its_dtype_is_no_arm() -> None:
    silent = replace(FP8, observed_dtype="bfloat16")
    unread = replace(FP8, observed_dtype=None)
    assert _statuses(identity, bare()) == ["pass", "pass"]
    assert _statuses(identity, bare(arms=(BF16, silent))) == ["pass", "fail"]
    assert _statuses(identity, bare(arms=(BF16, unread))) == ["pass", "not observed"]
    assert _statuses(
        identity, bare(arms=(replace(BF16, expected_dtype="bfloat16", observed_dtype="auto"),))
    ) == ["pass"]


def test_a_pool_that_its_pages_cannot_explain_spoils_capacity() -> None:
    small = replace(FP8, pool_tokens=600_000)
    found = tuple(pool_size.check(bare(arms=(BF16, small)), Policy()))
    assert [(each.status, each.spoils) for each in found] == [("pass", ()), ("fail", ("capacity",))]


def test_a_drift_is_told_and_a_level_server_passes() -> None:
    rng = np.random.default_rng(2)
    calm = simulated_calls(rng, pairs=20, effect=0.0, noise=Noise(phi=0.2))
    drifting = simulated_calls(rng, pairs=20, effect=0.0, noise=Noise(phi=0.2, drift=0.3))
    assert _statuses(steady, bare(observations=observed(*calm))) == ["pass", "pass"]
    assert _statuses(steady, bare(observations=observed(*drifting))) == ["fail", "fail"]


def test_plausible_evidence_passes_every_gate() -> None:
    evidence = replace(compared(effect=-0.1), sweeps=sweeps())
    statuses = {
        gate.status
        for module in rulebook.modules(gates)
        for gate in module.check(evidence, Policy())
    }
    assert statuses == {"pass"}


@pytest.mark.parametrize(
    ("share", "said"), [(None, []), (0.0, []), (0.01, ["pass"]), (0.02, ["fail"])]
)
def test_more_than_one_call_in_a_hundred_answered_429_is_the_limiters_latency(
    share: float | None, said: list[str]
) -> None:
    evidence = replace(bare(), health=(ClientHealth(arm="fp8", limited_share=share),))
    assert _statuses(limiter, evidence) == said
    spoiled = {what for gate in limiter.check(evidence, Policy()) for what in gate.spoils}
    assert spoiled == ({"ttft", "itl", "turn", "capacity"} if said == ["fail"] else set())


@pytest.mark.parametrize(
    ("fp8", "failed"),
    [
        (Telemetry(clock_mhz=1700.0), ["fp8"]),
        (Telemetry(clock_mhz=1800.0), []),  # a tenth is no other mode
        (
            Telemetry(clock_mhz=1700.0, power_capped_share=0.3),
            [],
        ),  # what it draws is the arm's own doing
        (Telemetry(clock_mhz=1700.0, throttled_share=0.05), ["fp8"]),
        (Telemetry(clock_mhz=2300.0), ["bf16"]),
        (Telemetry(), []),
    ],
)
def test_clocks_that_were_set_for_one_gpu_are_not_the_arm(
    fp8: Telemetry, failed: list[str]
) -> None:
    evidence = bare(kind="measured", server=(("bf16", Telemetry(clock_mhz=1980.0)), ("fp8", fp8)))
    found = [gate for gate in throttled.check(evidence, Policy()) if gate.unit == "MHz"]
    assert [gate.arm for gate in found] == failed
    assert all(gate.status == "fail" and "turn" in gate.spoils for gate in found)


@pytest.mark.parametrize(
    ("figures", "status", "message"),
    [
        (
            Telemetry(throttled_share=0.0),
            "pass",
            "GPUs were throttled (thermal or power brake) for 0.0% of the time",
        ),
        (
            Telemetry(throttled_share=0.02, power_capped_share=0.4),
            "pass",
            (
                "GPUs were throttled (thermal or power brake) for 2.0% of the time, at the "
                "power limit for 40%"
            ),
        ),
        (
            Telemetry(throttled_share=0.3),
            "fail",
            (
                "a GPU was throttled (thermal or power brake) for 30.0% of the time: its "
                "cooling was measured, not the arm"
            ),
        ),
        (
            Telemetry(),
            "not observed",
            "GPU throttling unknown: set `gpu_metrics` to a DCGM exporter",
        ),
    ],
)
def test_a_gpu_that_was_slowed_for_long_is_not_the_arm(
    figures: Telemetry, status: str, message: str
) -> None:
    evidence = bare(kind="measured", server=(("fp8", figures),))
    (gate,) = throttled.check(evidence, Policy())
    assert (gate.status, gate.message, bool(gate.spoils)) == (status, message, status == "fail")
    assert list(throttled.check(replace(evidence, kind="emulated"), Policy())) == []


def test_two_arms_that_nothing_tells_apart_are_a_control_and_never_a_verdict() -> None:
    # 8% slower and surely so: the machine's, or the
    # start's, and no choice between two ways to serve.
    evidence = compared(effect=0.08)
    assert decide(evidence).server[0].verdict == "avoid"
    twins = replace(
        evidence,
        arms=tuple(replace(arm, twin=arm.name != evidence.reference) for arm in evidence.arms),
    )
    decision = decide(twins)
    (gate,) = (each for each in decision.gates if each.name == "identity" and each.status == "fail")
    assert (
        gate.message
        == "the same configuration as bf16 by all that both say: a control, and no choice"
    )
    assert {each.verdict for each in (*decision.server, *decision.classes)} == {"test further"}
