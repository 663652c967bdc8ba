"""What is computed of evidence, by values and at thresholds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from advisor.assess import accuracy, capacity, figures, lines, reach, room
from advisor.case import doubling, weighty
from advisor.decide import assess
from advisor.dtypes import same_numbers
from advisor.estimate import Estimate
from advisor.evidence import AccuracyBucket, Calls, Evidence, Prior, Telemetry, WorkloadClass
from advisor.gates import steady
from advisor.policy import Policy, ServiceLimits
from advisor.statistics.crossing import CarriedLoad
from tests.advisor.cases import BF16, FP8, bare, compared, observed, search
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


@pytest.mark.parametrize(
    ("shortest", "longest", "found"),
    [
        (1024, 1024, (1024,)),
        (1024, 4096, (1024, 2048, 4096)),
        (1024, 5000, (1024, 2048, 4096, 5000)),
        (2048, 1024, (1024,)),
    ],
)
def test_lengths_double_as_far_as_the_longest(
    shortest: int, longest: int, found: tuple[int, ...]
) -> None:
    assert doubling(shortest, longest) == found


def test_classes_of_a_tenth_bind_the_server_or_all_where_none_is_so_large() -> None:
    assert weighty((("a", 0.1), ("b", 0.0999), ("c", 0.8))) == ("a", "c")
    assert weighty(tuple((str(each), 1 / 11) for each in range(11))) == tuple(map(str, range(11)))
    deployment = bare().deployment
    for window, last in ((40_000, 39 * 1024), (None, 128 * 1024), (100, 2048)):
        assert (
            assess(bare(deployment=replace(deployment, max_model_len=window)), Policy())
            .context_sweep()
            .lengths[-1]
            == last
        )


@pytest.mark.parametrize(
    ("between", "found"),
    [
        (None, {8.0, 16.0, 32.0}),
        ((8.8, 17.6), {8.0, 16.0}),  # a tenth above its own length is a bucket's still
        ((8.9, 17.7), {16.0, 32.0}),
        ((1.0, 2.0), {8.0}),
        ((100.0, 200.0), {32.0}),
    ],
)
def test_buckets_speak_for_lengths_up_to_a_tenth_above_their_own(
    between: tuple[float, float] | None, found: set[float]
) -> None:
    assert reach.lengths_about((16.0, 8.0, 32.0, 8.0), between) == found
    assert reach.lengths_about((), (1.0, 2.0)) == frozenset()


def test_a_server_that_nothing_kept_busy_weighs_its_classes_alike() -> None:
    classes = (
        WorkloadClass(name="a", gpu_time_share=0.0),
        WorkloadClass(name="b", gpu_time_share=0.0),
    )
    assert reach.shares(bare(workloads=classes)) == (("a", 0.5), ("b", 0.5))
    unequal = reach.shares(
        bare(
            workloads=(
                replace(classes[0], gpu_time_share=0.6),
                replace(classes[1], gpu_time_share=0.2),
            )
        )
    )
    assert dict(unequal) == pytest.approx({"a": 0.75, "b": 0.25})
    assert reach.contexts(bare(workloads=(WorkloadClass(name="a"),)), "a") is None
    assert (
        reach.contexts(bare(workloads=(WorkloadClass(name="a", context_tokens=np.zeros(0)),)), "a")
        is None
    )


@pytest.mark.parametrize(
    ("tokens", "pool", "state"),
    [
        (79.0, 100.0, "slack"),
        (80.0, 100.0, "binds"),
        (None, 100.0, "unknown"),
        (79.0, None, "unknown"),
    ],
)
def test_a_pool_binds_from_four_fifths_on(
    tokens: float | None, pool: float | None, state: str
) -> None:
    evidence = bare(
        workloads=(WorkloadClass(name="chat", working_set_tokens=tokens),),
        arms=(replace(BF16, pool_tokens=pool), FP8),
    )
    found = {each.workload: each for each in room.rooms(evidence, Policy())}
    assert [found[scope].state for scope in (None, "chat")] == [state, state]
    assert (
        f"{'working set' if tokens is None else 'pool size'} of bf16 unknown" in found[None].reason
    ) == (state == "unknown")


@pytest.mark.parametrize(
    ("figures_", "strained"),
    [
        (Telemetry(), False),
        (Telemetry(preemptions=0.0), False),
        (Telemetry(preemptions=1.0), True),
        (Telemetry(peak_kv_usage=0.94), False),
        (Telemetry(peak_kv_usage=0.95), True),
        (Telemetry(hit_rate=0.5, ideal_hit_rate=0.546875), False),
        (Telemetry(hit_rate=0.5, ideal_hit_rate=0.5625), True),
        (
            Telemetry(hit_rate=0.5, ideal_hit_rate=0.5625, sent_tokens=99.0),
            False,
        ),  # the pool never had to let go of a token
        (Telemetry(hit_rate=0.5, ideal_hit_rate=0.5625, sent_tokens=100.0), True),
    ],
)
# a case
def test_what_a_server_saw_says_that_its_pool_binds(figures_: Telemetry, strained: bool) -> None:  # noqa: FBT001
    evidence = bare(
        workloads=(WorkloadClass(name="chat", working_set_tokens=10.0),),
        arms=(replace(BF16, pool_tokens=100.0), FP8),
        server=(("bf16", figures_),),
    )
    assert (room.rooms(evidence, Policy())[0].state == "binds") == strained


@pytest.mark.parametrize(
    ("pool", "theirs", "state"),
    [(125.0, 0.5, "slack"), (124.0, 0.5, "binds"), (125.0, 0.55, "binds"), (125.0, None, "binds")],
)
def test_hits_that_a_pool_a_quarter_larger_misses_too_lack_no_room(
    pool: float, theirs: float | None, state: str
) -> None:
    evidence = bare(
        workloads=(WorkloadClass(name="chat", working_set_tokens=10.0),),
        arms=(replace(BF16, pool_tokens=100.0), replace(FP8, pool_tokens=pool)),
        server=(
            ("bf16", Telemetry(hit_rate=0.5, ideal_hit_rate=0.7)),
            ("fp8", Telemetry(hit_rate=theirs)),
        ),
    )
    assert room.rooms(evidence, Policy())[0].state == state


@pytest.mark.parametrize(
    ("peak", "replicas", "sessions"), [(None, 1, 6.0), (None, 2, 3.0), (12, 1, 12.0), (12, 3, 4.0)]
)
def test_the_replay_is_scaled_to_the_peak_of_one_replica(
    peak: int | None, replicas: int, sessions: float
) -> None:
    calls = _one(
        6,
        start_s=np.zeros(6),
        turn_ms=np.full(6, 1000.0),
        prompt_tokens=np.full(6, 90.0),
        output_tokens=np.full(6, 10.0),
        session=np.arange(6),
    )
    deployment = replace(bare().deployment, peak_agents=peak, replicas=replicas)
    evidence = bare(
        observations=observed(calls, calls, idle=False),
        deployment=deployment,
        arms=(replace(BF16, pool_tokens=100_000.0), FP8),
    )
    found = room.rooms(evidence, Policy())[0]
    assert found.working_set_tokens == 100 * sessions
    assert found.binds_from in (800, 801)
    assert f"{sessions:,.0f} sessions at once hold {100 * sessions:,.0f} tokens" in found.reason
    assert ("scaled from 6 in the replay" in found.reason) == (peak is not None)


@pytest.mark.parametrize(
    ("agents", "gpus", "busy"),
    [(8.0, 1, 13), (None, 1, 1), (0.4, 2, None), (0.5, 2, 100), (2.0, 4, 13), (1 / 3, 3, 100)],
)
def test_replicas_are_whole_and_carry_whole_agents(
    agents: float | None, gpus: int, busy: int | None
) -> None:
    deployment = replace(bare().deployment, peak_agents=100)
    assert capacity._busy(agents, deployment, gpus) == busy
    assert capacity._busy(agents, replace(deployment, peak_agents=None), gpus) is None
    if busy is not None and agents is not None:
        found = replace(ESTIMATE, value=agents)
        assert capacity._due(found, busy, gpus) == busy * round(agents * gpus) + 1
        assert capacity._due(found, None, gpus) is None


def test_beyond_what_a_server_carries_its_trouble_is_named() -> None:
    points = [
        replace(each, trouble="preempted" if each.agents > 10 else None)
        for each in search("fp8", 10)
    ]
    evidence = bare(
        capacity=tuple(points),
        deployment=replace(bare().deployment, peak_agents=30, spare_replicas=2),
    )
    (found,) = capacity.capacities(evidence, Policy())
    assert found.reason == "pool filled; beyond it the server is in trouble: preempted"
    assert found.agents_per_gpu is not None
    each = math.floor(found.agents_per_gpu.value)
    assert found.replicas_at_peak == math.ceil(30 / each) + 2
    assert found.next_replica_at_agents == math.ceil(30 / each) * each + 1
    gpus = found.gpus_at_peak
    assert gpus is not None
    assert (gpus.low or 0) <= gpus.value == found.replicas_at_peak <= (gpus.high or 0)
    assert (
        capacity._agents_per_gpu(
            CarriedLoad(low=4, value=8, high=None), trials=3, share=0.95, gpus=2, level=0.9
        ).high
        is None
    )


def test_a_rate_is_the_mean_of_its_blocks_and_has_an_interval_from_four_on() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    found = figures.rate(values, unit="1/s", method="blocks")
    assert found is not None
    factor = math.exp(
        3.182446305284263 * values.std(ddof=1) / 2 / 2.5
    )  # Student's t with three degrees of freedom
    assert (found.value, found.low, found.high, found.n) == pytest.approx(
        (2.5, 2.5 / factor, 2.5 * factor, 4)
    )
    few = figures.rate(values[:3], unit="1/s", method="blocks")
    assert few is not None
    assert (few.value, few.low, few.high, few.n) == (2.0, None, None, 3)
    assert figures.rate(values[:1], unit="1/s", method="blocks") is None
    assert figures.rate(values[:2], unit="1/s", method="blocks") is not None
    nothing = figures.rate(np.zeros(5), unit="1/s", method="blocks")
    assert nothing is not None
    assert (nothing.value, nothing.low) == (0.0, None)


def _table(evidence: Evidence, policy: Policy) -> dict[str, Estimate]:
    return {
        each.name: each.estimate for each in figures.figures(evidence, policy) if each.arm == "fp8"
    }


def test_turns_are_within_a_service_level_up_to_its_limit_and_those_that_failed_are_not() -> None:
    calls = _one(
        80,
        block=np.arange(80) // 20,
        start_s=np.arange(80) * 0.5,
        turn_ms=np.tile([900.0, 1000.0, 1001.0, 500.0], 20),
    )
    calls = replace(
        calls,
        ok=np.arange(80) % 4 != 3,
        output_tokens=np.full(80, 10.0),
        tail=np.zeros(80, dtype=bool),
    )
    evidence = bare(
        observations=observed(calls, calls), deployment=replace(bare().deployment, replicas=2)
    )
    found = _table(evidence, Policy(slos=(ServiceLimits(turn_ms=1000.0),)))
    assert (found["within_slo"].value, found["within_slo"].n) == (0.5, 4)
    assert (found["within_slo"].low or 0.0) < 0.5 < (found["within_slo"].high or 0.0)
    assert found["dropped_share"].value == 0.25
    # Twenty turns in each block, of which the last but one ends last.
    assert found["goodput_per_s"].value == pytest.approx(10 / 10.001)
    assert found["requests_per_s"].value == pytest.approx(15 / 10.001)
    assert found["output_tokens_per_s"].value == pytest.approx(150 / 10.001)
    assert found["usd_per_turn"].value == pytest.approx(2 * 3.0 / 3600 / 1.5 * 1.0001)
    assert found["usd_per_mtok"].value == pytest.approx(2 * 3.0 / 3600 * 1e6 / 15 * 1.0001)
    watched = replace(evidence, server=(("fp8", Telemetry(watts=300.0)),))
    assert _table(watched, Policy())["joule_per_token"].value == pytest.approx(20.0 * 1.0001)
    free = replace(
        evidence,
        deployment=replace(
            evidence.deployment, gpu=replace(evidence.deployment.gpu, usd_per_hour=None)
        ),
    )
    assert not {"usd_per_turn", "usd_per_mtok"} & _table(free, Policy()).keys()
    draining = replace(calls, tail=np.arange(80) >= 40)
    assert "requests_per_s" in _table(bare(observations=observed(draining, draining)), Policy())
    most = replace(calls, tail=np.arange(80) >= 39)
    assert "requests_per_s" not in _table(bare(observations=observed(most, most)), Policy())
    three = replace(calls, block=np.arange(80) // 27)
    few = _table(
        bare(observations=observed(three, three)), Policy(slos=(ServiceLimits(turn_ms=1000.0),))
    )
    assert (few["within_slo"].low, few["within_slo"].n) == (None, 3)


def test_a_warm_up_is_cut_where_the_error_of_the_rest_is_least() -> None:
    level = np.sin(np.arange(200) * 2.4)
    series = np.where(np.arange(200) < 30, 8.0, 0.0) + level
    found = steady.mser5(series)
    assert found is not None
    assert (found.drop, found.settled) == (30, True)
    higher = steady.mser5(5.0 + series)
    assert higher is not None
    assert (higher.drop, higher.settled) == (30, True)
    first, last = (
        np.array([part.mean() for part in np.split(each, 4)])
        for each in (level[:64], level[128:192] + 0.5)
    )
    moved, p = steady._thirds(np.concatenate([level[:128], level[128:192] + 0.5]))
    assert (moved, p) == pytest.approx(
        (last.mean() - first.mean(), stats.ttest_ind(first, last, equal_var=False).pvalue)
    )
    late = steady.mser5(np.where(np.arange(200) < 85, 8.0, 0.0) + level)
    assert late is not None
    assert (late.drop, late.settled) == (85, True)
    assert steady.mser5(series[:119]) is None
    assert steady.mser5(series[:120]) is not None
    flat = steady.mser5(np.zeros(200))
    assert flat == steady.Warmup(drop=0, settled=True, moved=0.0)


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        (BF16, BF16, True),
        (replace(BF16, observed_dtype="bf16"), BF16, True),
        (FP8, BF16, False),
        (replace(BF16, observed_dtype=None), BF16, False),
        (BF16, replace(BF16, observed_dtype=None), False),
        (replace(BF16, kernel=None), replace(BF16, kernel=None), False),
        (replace(BF16, kernel="FLASHINFER"), BF16, False),
    ],
)
def test_answers_cannot_change_where_numbers_and_kernel_are_known_to_be_the_same(
    mine: object,
    theirs: object,
    same: bool,  # noqa: FBT001  # a case
) -> None:
    assert same_numbers(mine, theirs) == same  # type: ignore[arg-type]  # arms of the table


def test_no_evidence_of_one_side_compares_nothing() -> None:
    evidence = compared(effect=0.0, pairs=6)
    for arm in ("bf16", "fp8"):
        without = replace(
            evidence, observations=tuple(each for each in evidence.observations if each.arm != arm)
        )
        assert assess(without, Policy()).speeds == ()


def test_contexts_that_nobody_gave_are_prompts_and_answers_of_the_reference() -> None:
    calls = _one(
        4, prompt_tokens=np.array([100.0, 200.0, np.nan, 400.0]), output_tokens=np.full(4, 10.0)
    )
    evidence = bare(
        workloads=(WorkloadClass(name="chat"),),
        observations=observed(calls, replace(calls, prompt_tokens=np.full(4, 9.0))),
    )
    found = reach.contexts(evidence, "chat")
    assert found is not None
    assert found.tolist() == [110.0, 210.0, 410.0]


def test_questions_of_a_context_are_as_alike_as_they_show_and_ten_more_would_be() -> None:
    # Both answers of each context are lost, won or neither: two are worth one.
    flips = np.repeat(np.tile([-1.0, 0.0, 0.0, 1.0], 25), 2)
    alike = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192,
        both=100,
        reference_only=50,
        arm_only=50,
        neither=0,
        reference_scores=(flips <= 0).astype(np.float64),
        arm_scores=(flips >= 0).astype(np.float64),
        clusters=np.repeat(np.arange(100), 2),
    )
    assert 0.7 < accuracy.correlation(alike) < 1.0
    assert accuracy.correlation(replace(alike, clusters=np.arange(200))) == 0.0
    assert accuracy.correlation(replace(alike, arm_scores=alike.reference_scores)) == pytest.approx(
        0.3
    )
    apart = np.random.default_rng(1).permutation(200) // 2
    assert accuracy.correlation(replace(alike, clusters=apart)) < 0.2


def test_a_level_is_what_the_length_of_contexts_leaves() -> None:
    calls = _one(
        60,
        prompt_tokens=np.geomspace(100.0, 1e5, 60),
        output_tokens=np.zeros(60),
        start_s=np.arange(60.0),
    )
    shift = np.sin(np.arange(60.0))
    shift -= np.polyval(
        np.polyfit(np.log(calls.prompt_tokens), shift, 1), np.log(calls.prompt_tokens)
    )
    timed = replace(calls, tpot_ms=np.exp(0.3 * np.log(calls.prompt_tokens) + shift))
    level = steady._without_length(timed)
    assert np.ptp(level - shift) == pytest.approx(0.0, abs=1e-9)
    backwards = replace(timed, start_s=-timed.start_s, ok=np.arange(60) != 7)
    assert steady._without_length(backwards).size == 59
    assert float(
        np.ptp(steady._without_length(replace(timed, tpot_ms=np.full(60, 5.0))))
    ) == pytest.approx(0.0, abs=1e-9)


def test_a_published_break_even_is_that_of_the_arm_and_the_gpu() -> None:
    right = Prior(
        what="break_even_tokens", arm="fp8", value=7.0, unit="tokens", gpu="H100-SXM", source="x"
    )
    others = (
        replace(right, what="slope"),
        replace(right, arm="other"),
        replace(right, gpu="B200-SXM"),
    )
    assert lines._prior(bare(priors=others), "fp8") is None
    assert lines._prior(bare(priors=(*others, right)), "fp8") == 7.0
    assert lines._prior(bare(priors=(replace(right, gpu=None),)), "fp8") == 7.0


@pytest.mark.parametrize(
    ("batches", "shares", "batch"),
    [
        ((4.0, 8.0), (0.25, 0.75), 7.0),
        ((None, 8.0), (0.25, 0.75), 8.0),
        ((None, None), (0.5, 0.5), None),
    ],
)
def test_the_batch_of_the_user_weighs_classes_that_know_theirs(
    batches: tuple[float | None, float | None], shares: tuple[float, float], batch: float | None
) -> None:
    classes = tuple(
        WorkloadClass(name=name, batch=each) for name, each in zip("ab", batches, strict=True)
    )
    assert lines._own_batch(bare(workloads=classes), dict(zip("ab", shares, strict=True))) == batch


def test_a_rate_is_what_a_block_did_in_its_time_and_a_block_of_no_time_has_none() -> None:
    calls = _one(
        6, block=np.array([1, 1, 1, 2, 2, 3]), start_s=np.array([0.0, 0.1, 0.2, 10.0, 10.0, 20.0])
    )
    timed = replace(calls, turn_ms=np.array([50.0, 50.0, 50.0, 2000.0, 500.0, 0.0]), tail=None)
    assert figures.rates_by_block([timed], [np.ones(6)]).tolist() == pytest.approx(
        [3 / 0.25, 2 / 2.0]
    )
    late = replace(timed, tail=np.array([False, False, True, False, False, False]))
    assert figures.rates_by_block([late], [np.ones(6)]).tolist() == pytest.approx(
        [2 / 0.15, 2 / 2.0]
    )
