"""What is said exactly at a threshold, and next to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.assess import answers, speed
from advisor.assess.lines import ttft_curve
from advisor.decide import assess, decide
from advisor.estimate import Estimate
from advisor.evidence import (
    AaControl,
    AccuracyBucket,
    Calls,
    ClientHealth,
    Observation,
    WorkloadClass,
)
from advisor.gates import (
    answers_possible,
    client,
    compute_floor,
    generated_length,
    identity,
    one_mode,
    pool_size,
    steady,
)
from advisor.legs.speed import swap
from advisor.policy import Policy
from advisor.rules import known_issues, unvalidated_backend
from advisor.steps import (
    Again,
    ArmsFile,
    Calibrate,
    CapacitySearch,
    Control,
    Features,
    Lengths,
    MorePairs,
    Questions,
    Restarts,
    Step,
    Swap,
    without_amount,
)
from advisor.verdict import Gate
from tests.advisor.cases import BF16, FP8, SPREAD, bare, compared, observed
from tests.advisor.worlds import Noise, simulated_calls

ESTIMATE = Estimate(value=2.0, low=1.0, high=4.0, n=5, unit="s", method="mean")


def taken(calls: Calls, count: int) -> Calls:
    """Return the first calls."""
    columns: dict[str, Any] = {
        name: None if (column := getattr(calls, name)) is None else column[:count]
        for name in Calls.__dataclass_fields__
    }
    return Calls(**columns)


def _one(count: int = 100, **columns: object) -> Calls:
    calls = taken(
        simulated_calls(np.random.default_rng(1), pairs=4, effect=0.0, noise=Noise())[0], count
    )
    return replace(calls, **columns)  # type: ignore[arg-type]  # a test names the column


def _statuses(found: list[Gate]) -> list[str]:
    return [each.status for each in found]


@pytest.mark.parametrize(
    ("pool", "expected", "status"),
    [
        (90, 100, "pass"),
        (89, 100, "fail"),
        (109, 100, "pass"),
        (111, 100, "fail"),
        (None, 100, None),
        (90, None, None),
    ],
)
def test_a_pool_may_be_a_tenth_off_its_pages(
    pool: float | None, expected: float | None, status: str | None
) -> None:
    evidence = bare(
        arms=(
            replace(BF16, pool_tokens=None),
            replace(FP8, pool_tokens=pool, expected_pool_tokens=expected),
        )
    )
    assert _statuses(list(pool_size.check(evidence, Policy()))) == (
        [] if status is None else [status]
    )


@pytest.mark.parametrize(
    ("ratio", "status", "limit"),
    [
        (0.89, "fail", 0.9),
        (0.9, "pass", 0.9),
        (1.0, "pass", 1.1),
        (1.1, "pass", 1.1),
        (1.11, "fail", 1.1),
    ],
)
def test_an_arm_writes_as_much_as_it_was_asked_for_within_a_tenth(
    ratio: float, status: str, limit: float
) -> None:
    calls = _one(100, output_tokens=np.full(100, 100 * ratio), asked_tokens=np.full(100, 100.0))
    evidence = bare(observations=observed(_one(100), calls))
    found = [each for each in generated_length.check(evidence, Policy()) if each.arm == "fp8"]
    assert [(each.status, each.limit) for each in found] == [(status, limit)]
    unknown = bare(
        observations=observed(_one(100), replace(calls, output_tokens=np.full(100, math.nan)))
    )
    assert [
        each.status for each in generated_length.check(unknown, Policy()) if each.arm == "fp8"
    ] == ["not observed"]
    nothing = bare(observations=observed(_one(100), replace(calls, asked_tokens=np.zeros(100))))
    assert [
        each.message for each in generated_length.check(nothing, Policy()) if each.arm == "fp8"
    ] == ["no token counts"]
    lost = (Observation(workload="chat", arm="bf16", calls=None), *observed(_one(100), calls)[1:])
    assert list(generated_length.check(bare(observations=lost), Policy())) == []


def test_a_first_token_five_percent_below_the_floor_is_still_possible() -> None:
    computed = np.full(100, 8000.0)
    floor = compute_floor.floor_ms(bare(), BF16, computed, computed)
    assert floor is not None
    at_it = _one(
        100,
        computed_tokens=computed,
        prompt_tokens=computed,
        ttft_ms=(1 - compute_floor.TOLERANCE) * floor,
    )
    for calls, status in ((at_it, "pass"), (replace(at_it, ttft_ms=0.99 * at_it.ttft_ms), "fail")):
        found = compute_floor.check(
            bare(observations=(Observation(workload="chat", arm="bf16", calls=calls),)), Policy()
        )
        assert _statuses(list(found)) == [status]
    quantised = replace(bare().model, weight_bits=8)
    faster = compute_floor.floor_ms(bare(model=quantised), BF16, computed, computed)
    unknown = compute_floor.floor_ms(
        bare(model=replace(quantised, weight_bits=None)), BF16, computed, computed
    )
    assert faster is not None
    assert faster[0] < floor[0]
    assert unknown is not None
    assert unknown[0] == floor[0]


@pytest.mark.parametrize(
    ("means", "gap", "above"),
    [
        ([0.0, 0.01, 0.2], 0.19, 1),
        ([0.0, 0.2, 0.21, 0.22], 0.2, 3),
        ([0.0, 0.099, 0.0], 0.0, 0),  # starts scatter by a tenth
        ([0.0] * 7 + [0.3], 0.0, 0),  # of eight, one is no mode
        ([0.0] * 6 + [0.3, 0.31], 0.3, 2),
        ([0.0, 0.0] + [0.3] * 6, 0.3, 6),
        ([0.0] + [0.3] * 7, 0.0, 0),
        ([0.0, 0.08, 0.16, 0.3], 0.0, 0),
    ],
)
def test_two_modes_are_further_apart_than_either_scatters(
    means: list[float], gap: float, above: int
) -> None:
    found, count = one_mode._gap(np.array(means))
    assert (found, float(count)) == pytest.approx((gap, above))


@pytest.mark.parametrize(
    ("here", "past", "statuses"),
    [
        ((50.0,), (), []),
        ((50.0, 52.0), (), []),
        ((50.0, 52.0, 60.0), (), ["pass"]),
        ((50.0, 52.0, 65.0), (), ["fail"]),
        ((65.0,), (50.0, 51.0), ["fail"]),
    ],
)
def test_a_start_is_held_to_two_others_of_this_run_or_of_history(
    here: tuple[float, ...], past: tuple[float, ...], statuses: list[str]
) -> None:
    evidence = bare(arms=(BF16, replace(FP8, checks_ms=here, past_checks_ms=past)))
    assert _statuses(list(one_mode.check(evidence, Policy()))) == statuses
    assert (
        list(
            one_mode.check(
                bare(arms=(BF16, replace(FP8, past_checks_ms=(50.0, 60.0, 90.0)))), Policy()
            )
        )
        == []
    )


def test_a_client_that_was_not_watched_is_not_observed_and_one_at_its_limits_passes() -> None:
    assert _statuses(list(client.check(bare(), Policy()))) == ["not observed"]
    policy = Policy()
    at_it = ClientHealth(
        send_lag_p99_ms=policy.max_send_lag_ms,
        loop_stall_max_ms=policy.max_loop_stall_ms,
        coalesced_share=policy.max_coalesced_share,
    )
    assert _statuses(list(client.check(bare(health=(at_it,)), policy))) == ["pass"]
    beyond = replace(at_it, send_lag_p99_ms=5.1, loop_stall_max_ms=math.inf)
    assert _statuses(list(client.check(bare(health=(beyond,)), policy))) == ["fail"]


@pytest.mark.parametrize(("right", "status"), [(30, "pass"), (29, "fail")])
def test_the_reference_has_to_get_ten_margins_right(right: int, status: str) -> None:
    bucket = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192,
        both=right,
        reference_only=0,
        arm_only=0,
        neither=100 - right,
    )
    found = [
        each
        for each in answers_possible.check(bare(accuracy=(bucket,)), Policy())
        if each.arm == "fp8"
    ]
    assert found[0].status == status
    assert (
        list(answers_possible.check(bare(accuracy=(replace(bucket, arm="other"),)), Policy())) == []
    )
    assert bucket.items == 100
    assert replace(bucket, reference_only=5).reference_right == (right + 5) / 105
    assert replace(bucket, reference_scores=np.array([0.5, 1.0])).reference_right == 0.75
    assert replace(bucket, reference_scores=np.zeros(0)).reference_right == right / 100
    assert (
        AccuracyBucket(
            arm="a", task="t", context_tokens=1, both=0, reference_only=0, arm_only=0, neither=0
        ).reference_right
        is None
    )


@pytest.mark.parametrize(("right", "kept"), [(6, True), (5, False)])
def test_a_bucket_in_which_the_reference_knows_less_than_two_margins_counts_for_nothing(
    right: int,
    kept: bool,  # noqa: FBT001  # a case
) -> None:
    bucket = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192,
        both=right,
        reference_only=0,
        arm_only=0,
        neither=100 - right,
    )
    assert answers.telling((bucket,), Policy()) == ((bucket,) if kept else ())


KNOWN = [
    *((sm, "fp8", kernel) for sm in (80, 86, 89) for kernel in ("FLASHINFER", "TRITON_ATTN")),
    *((90, "fp8_e4m3", kernel) for kernel in ("FLASH_ATTN(FA3)", "FLASHMLA")),
    (90, "fp8_e5m2", "FLASHINFER"),
    *((100, "fp8", kernel) for kernel in ("FLASHINFER", "CUTLASS_MLA", "TOKENSPEED_MLA")),
    (100, "nvfp4", "FLASHINFER"),
    *((120, "fp8", kernel) for kernel in ("FLASHINFER", "TRITON_MLA")),
]


@pytest.mark.parametrize(("sm", "dtype", "kernel"), KNOWN)
def test_a_combination_is_known_for_its_own_gpu_dtype_and_backend(
    sm: int, dtype: str, kernel: str
) -> None:
    def finds(sm: int, kernel: str) -> bool:
        evidence = bare(
            deployment=replace(bare().deployment, gpu=replace(bare().deployment.gpu, sm=sm))
        )
        arm = replace(FP8, observed_dtype=dtype, kernel=kernel)
        return (
            unvalidated_backend.check(assess(replace(evidence, arms=(BF16, arm)), Policy()), arm)
            is not None
        )

    assert not finds(sm, kernel)
    assert finds(sm + 1, kernel)
    assert finds(sm, "OTHER")


@pytest.mark.parametrize(
    ("step", "rest", "count"),
    [
        (MorePairs(pairs=7), MorePairs(pairs=0), 7),
        (Swap(pairs=8), Swap(pairs=0), 8),
        (Restarts(restarts=9), Restarts(restarts=0), 9),
        (CapacitySearch(limits=None, trial_s=60.0), CapacitySearch(limits=None, trial_s=0.0), 60),
        (Questions(lengths=(1024,), items=5), Questions(lengths=(1024,)), 5),
        (Questions(lengths=(1024,)), Questions(lengths=(1024,)), 0),
        *(
            (step, step, 0)
            for step in (
                Again(),
                Control(arm="a"),
                Lengths(lengths=(1,)),
                Features(),
                Calibrate(),
                ArmsFile(arm="bf16-same-backend"),
            )
        ),
    ],
)
def test_of_steps_that_differ_in_how_much_the_most_settles_all(
    step: Step, rest: Step, count: float
) -> None:
    assert without_amount(step) == (rest, count)


def test_an_inverse_turns_its_ends_round_and_opens_those_at_zero() -> None:
    found = ESTIMATE.inverse(8.0, unit="1/s")
    assert (found.value, found.low, found.high, found.unit, found.method) == (
        4.0,
        2.0,
        8.0,
        "1/s",
        "mean",
    )
    opened = replace(ESTIMATE, low=0.0, method="inverse").inverse(8.0, unit="1/s")
    assert (opened.low, opened.high, opened.method) == (2.0, None, "inverse")
    assert replace(ESTIMATE, high=None).inverse(8.0, unit="1/s").low is None
    assert [ESTIMATE.is_above(bound) for bound in (0.9, 1.0)] == [True, False]
    assert [ESTIMATE.is_below(bound) for bound in (4.0, 4.1)] == [False, True]
    assert [replace(ESTIMATE, low=-1.0, high=1.0).is_within(margin) for margin in (1.0, 1.1)] == [
        False,
        True,
    ]


def test_a_series_that_still_settles_half_way_has_no_level() -> None:
    found = steady.mser5(np.linspace(3.0, 0.0, 200) + 0.01 * np.sin(np.arange(200)))
    assert found is not None
    assert (found.settled, found.moved) == (False, None)
    drifting = steady.mser5(np.sin(np.arange(400) * 2.4) + np.where(np.arange(400) < 260, 0.0, 1.5))
    assert drifting is not None
    assert not drifting.settled


def test_what_invalidates_one_class_leaves_the_others_and_a_tenth_of_the_mix_the_server() -> None:
    classes = (
        WorkloadClass(name="chat", gpu_time_share=0.92),
        WorkloadClass(name="code", gpu_time_share=0.08),
    )
    gate = Gate(name="g", status="fail", message="m", workload="chat", spoils=("turn",))

    def invalid(gate: Gate) -> list[bool]:
        case = replace(assess(bare(workloads=classes), Policy()), gates=(gate,))
        return [case.spoiler("turn", "fp8", scope) is not None for scope in (None, "chat", "code")]

    assert invalid(gate) == [True, True, False]
    assert invalid(replace(gate, workload="code")) == [False, False, True]
    assert invalid(replace(gate, workload=None)) == [True, True, True]
    assert invalid(replace(gate, arm="bf16")) == [True, True, False]
    for other in (
        replace(gate, arm="other"),
        replace(gate, status="pass"),
        replace(gate, spoils=("ttft",)),
    ):
        assert invalid(other) == [False] * 3


def test_an_issue_asks_for_an_upgrade_only_where_it_asks_for_something() -> None:
    old = replace(bare().deployment, version="0.10.2")
    bad, good = (
        assess(
            compared(effect=-0.12, items=items, change=change, discordance=0.05, deployment=old),
            Policy(),
        )
        for items, change in ((0, 0.0), (600, 0.0))
    )
    asked, shown = (
        [each for each in known_issues.check(case, FP8) if each.leg == "safe"]
        for case in (bad, good)
    )
    assert "upgrade vLLM to 0.19.1" in [each.remedy for each in asked]
    assert {each.remedy for each in shown} == {None}
    assert {each.kind for each in shown} == {"informs"}
    assert all("The answers measured here do not show it." in each.message for each in shown)


def test_the_comparison_that_decided_says_whether_it_holds() -> None:
    worse = decide(
        compared(
            effect=-0.12,
            items=300,
            change=-0.16,
            discordance=0.3,
            arms=(BF16, replace(FP8, scales="calibrated")),
        )
    )
    unknown = decide(compared(effect=-0.3, pairs=24, items=10, change=0.0, discordance=0.1))
    for decision, relation, holds in ((worse, "<", True), (unknown, ">", None)):
        (verdict,) = decision.server
        assert verdict.inequality is not None
        assert (verdict.inequality.left, verdict.inequality.relation, verdict.inequality.right) == (
            "accuracy, fp8 - bf16",
            relation,
            "-3 pp",
        )
        assert verdict.inequality.holds is holds
    use, avoid, equal = (
        decide(compared(effect=effect, pairs=24, items=600)).server[0]
        for effect in (-0.12, 0.12, 0.0)
    )
    assert [
        (each.verdict, each.inequality.relation, each.inequality.holds)
        for each in (use, avoid, equal)
        if each.inequality is not None
    ] == [("use", "<", True), ("avoid", ">", True), ("no difference", "inside", True)]
    assert [each.flips[0].rsplit(" ", 1)[0] for each in (use, avoid, equal)] == [
        "a margin (min_change) above",
        "a margin (min_change) above",
        "a margin (min_change) below",
    ]


def test_a_control_of_a_class_that_the_mix_lacks_says_nothing_of_the_mix() -> None:
    first, second = simulated_calls(
        np.random.default_rng(1), pairs=6, effect=0.05, noise=Noise(), swapped=False
    )
    controls = speed.controls(
        bare(aa=(AaControl(workload="elsewhere", first=first, second=second),)),
        (("chat", 1.0),),
        ("turn_ms",),
        position=0.005,
    )
    assert list(controls) == [("elsewhere", "turn_ms")]
    both = compared(effect=-0.1, pairs=6)
    assert speed.between(both, "bf16", "nobody", (("chat", 1.0),), Policy()) is None
    assert speed.between(both, "nobody", "fp8", (("chat", 1.0),), Policy()) is None
    direct = speed.between(both, "bf16", "fp8", (("chat", 1.0),), Policy())
    assert direct is not None
    assert direct.value == pytest.approx(-0.1, abs=0.03)
    assert speed._minutes_per_pair(bare()) == 0.0


def test_a_class_that_loses_says_from_which_share_on_it_undoes_the_gain() -> None:
    rng = np.random.default_rng(3)
    quiet = Noise(call=0.01, wander=0.0, block=0.0)
    observations: list[Observation] = []
    for name, effect in (("agents", math.log(0.8)), ("rag", math.log(1.1))):
        observations += observed(
            *simulated_calls(rng, pairs=12, effect=effect, noise=quiet, swapped=False, restarts=12),
            workload=name,
        )
    classes = tuple(
        WorkloadClass(name=name, gpu_time_share=share, context_tokens=SPREAD)
        for name, share in (("agents", 0.8), ("rag", 0.2))
    )
    decision = decide(
        compared(effect=0.0, observations=tuple(observations), workloads=classes, items=600)
    )
    assert decision.choice.verdict == "use"
    # 0.2 of gain and 0.1 of loss: with a share s of rag the
    # mix changes by -0.2 + 0.3 s, which is -3% at 57%.
    assert "rag above 57% of server time" in decision.flips


def test_machines_change_places_over_an_even_number_of_pairs_and_six_at_least() -> None:
    assert [swap(pairs).pairs for pairs in (0, 6, 7, 8)] == [6, 6, 8, 8]


@pytest.mark.parametrize(
    ("pairs", "units"), [(3, "3 block pairs"), (5, "5 block pairs"), (2, "12 cells")]
)
def test_a_prefill_curve_says_over_how_many_units_its_error_was_taken(
    pairs: int, units: str
) -> None:
    tokens = np.tile([1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0], pairs)
    ttft_ms = (
        1e-6 * tokens**2
        + 0.02 * tokens
        + 5 * np.exp(np.random.default_rng(1).normal(0, 0.1, tokens.size))
    )
    found = ttft_curve(
        "a", pair=np.repeat(np.arange(pairs), 6), computed_tokens=tokens, ttft_ms=ttft_ms
    )
    assert found is not None
    for estimate, truth in ((found.a, 1e-6), (found.b, 0.02), (found.c, 5.0)):
        assert estimate.method.endswith(f"Student's t over {units}")
        assert estimate.value == pytest.approx(truth, rel=0.2)
        assert 0.0 <= (estimate.low or 0.0) <= estimate.value <= (estimate.high or 0.0)
    assert found.range_tokens == (1000.0, 32000.0)


@pytest.mark.parametrize(("below", "status"), [(3, "pass"), (4, "fail")])
def test_one_first_token_in_a_hundred_may_lie_below_the_floor(below: int, status: str) -> None:
    computed = np.full(300, 8000.0)
    floor = compute_floor.floor_ms(bare(), BF16, computed, computed)
    assert floor is not None
    calls = replace(
        simulated_calls(np.random.default_rng(1), pairs=10, effect=0.0, noise=Noise())[0],
        computed_tokens=computed,
        prompt_tokens=computed,
        ttft_ms=np.where(np.arange(300) < below, 0.5, 2.0) * floor,
    )
    found = compute_floor.check(
        bare(observations=(Observation(workload="chat", arm="bf16", calls=calls),)), Policy()
    )
    assert _statuses(list(found)) == [status]


@pytest.mark.parametrize(
    ("wanted", "observed_", "status"),
    [
        ("bfloat16", "fp8_e4m3", "fail"),
        ("bfloat16", "auto", "pass"),
        ("float16", "auto", "pass"),
        ("fp8", "auto", "fail"),
        ("fp8", "fp8_e4m3", "pass"),
        ("auto", "fp8_e4m3", "pass"),
        (None, "bfloat16", "pass"),
        ("bfloat16", None, "not observed"),
    ],
)
def test_a_server_runs_the_dtype_that_was_asked_for(
    wanted: str | None, observed_: str | None, status: str
) -> None:
    evidence = bare(arms=(BF16, replace(FP8, expected_dtype=wanted, observed_dtype=observed_)))
    assert [each.status for each in identity.check(evidence, Policy()) if each.arm == "fp8"] == [
        status
    ]


def test_a_first_token_of_no_time_is_no_measurement() -> None:
    tokens = np.tile(np.array([1e3, 4e3, 8e3, 16e3]), 6)
    columns = {
        "pair": np.repeat(np.arange(6), 4),
        "computed_tokens": tokens,
        "ttft_ms": 5 + 0.01 * tokens,
    }
    whole = ttft_curve("fp8", **columns)
    assert whole is not None  # four lengths are enough
    assert (whole.b.value, whole.c.value) == pytest.approx((0.01, 5.0), rel=1e-3)
    extra = {
        name: np.append(column, {"pair": 6, "computed_tokens": 2e3, "ttft_ms": 0.0}[name])
        for name, column in columns.items()
    }
    assert ttft_curve("fp8", **{**extra, "pair": extra["pair"].astype(np.int64)}) == whole
    assert (
        ttft_curve("fp8", **{name: column[tokens > 1e3] for name, column in columns.items()})
        is None
    )
