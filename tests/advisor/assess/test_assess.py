from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.assess import accuracy, figures, lines, reach, room
from advisor.assess.accuracy import by_workload
from advisor.case import missing
from advisor.decide import assess
from advisor.evidence import (
    AccuracyBucket,
    Arm,
    Evidence,
    Observation,
    Prior,
    Telemetry,
    WorkloadClass,
)
from advisor.policy import Policy, ServiceLimits
from tests.advisor.cases import BF16, FP8, bare, compared, observed, sweeps
from tests.advisor.worlds import Noise, simulated_calls


def test_sessions_alive_together_add_up_and_others_do_not() -> None:
    calls = simulated_calls(
        np.random.default_rng(1), pairs=1, sessions=3, turns=1, effect=0.0, noise=Noise(call=0.0)
    )[0]
    tokens = np.array([1000.0, 2000.0, 4000.0])
    together = replace(
        calls,
        start_s=np.array([0.0, 1.0, 2.0]),
        turn_ms=np.full(3, 10_000.0),
        prompt_tokens=tokens,
        output_tokens=np.zeros(3),
    )
    apart = replace(together, turn_ms=np.full(3, 500.0))
    assert room.working_set([together]) == room.LiveContexts(tokens=7000.0, sessions=3.0)
    assert room.working_set([apart]) == room.LiveContexts(tokens=4000.0, sessions=1.0)


@pytest.mark.parametrize(
    ("telemetry", "working_set", "pool", "state"),
    [
        (Telemetry(), 100_000.0, 420_000.0, "slack"),
        (Telemetry(), 400_000.0, 420_000.0, "binds"),
        (Telemetry(hit_rate=0.7, ideal_hit_rate=0.9), 100_000.0, 420_000.0, "binds"),
        (Telemetry(peak_kv_usage=0.99), 100_000.0, 420_000.0, "binds"),
        (Telemetry(), 100_000.0, None, "unknown"),
        (Telemetry(), None, 420_000.0, "unknown"),
    ],
)
def test_the_pool_binds_by_what_is_alive_or_by_what_the_server_saw(
    telemetry: Telemetry, working_set: float | None, pool: float | None, state: str
) -> None:
    evidence = bare(
        arms=(replace(BF16, pool_tokens=pool), FP8),
        workloads=(WorkloadClass(name="chat", working_set_tokens=working_set),),
        observations=(Observation(workload="chat", arm="bf16", telemetry=telemetry),),
    )
    assert [each.state for each in room.rooms(evidence, Policy()) if each.workload == "chat"] == [
        state
    ]


@pytest.mark.parametrize(
    ("sent", "state"), [(900_000.0, "slack"), (1_100_000.0, "binds"), (None, "binds")]
)
def test_a_pool_that_could_hold_all_that_was_ever_sent_is_not_why_the_cache_hit_less(
    sent: float | None, state: str
) -> None:
    evidence = bare(
        arms=(replace(BF16, pool_tokens=1_000_000.0), FP8),
        workloads=(WorkloadClass(name="chat", working_set_tokens=1000.0),),
        observations=(
            Observation(
                workload="chat", arm="bf16", telemetry=Telemetry(hit_rate=0.1, ideal_hit_rate=0.2)
            ),
        ),
        server=(("bf16", Telemetry(sent_tokens=sent)),),
    )
    assert [each.state for each in room.rooms(evidence, Policy()) if each.workload == "chat"] == [
        state
    ]


@pytest.mark.parametrize(("theirs", "state"), [(0.1, "slack"), (0.2, "binds"), (None, "binds")])
def test_hits_that_a_pool_of_twice_the_size_misses_too_are_not_missed_for_want_of_room(
    theirs: float | None, state: str
) -> None:
    seen = {"bf16": Telemetry(hit_rate=0.1, ideal_hit_rate=0.2), "fp8": Telemetry(hit_rate=theirs)}
    evidence = bare(
        workloads=(WorkloadClass(name="chat", working_set_tokens=1000.0),),
        observations=tuple(
            Observation(workload="chat", arm=arm, telemetry=telemetry)
            for arm, telemetry in seen.items()
        ),
    )
    assert [each.state for each in room.rooms(evidence, Policy()) if each.workload == "chat"] == [
        state
    ]


def test_shares_are_those_of_gpu_time_or_else_of_turn_time() -> None:
    told = (
        WorkloadClass(name="a", gpu_time_share=0.6),
        WorkloadClass(name="b", gpu_time_share=0.2),
    )
    assert dict(reach.shares(bare(workloads=told))) == pytest.approx({"a": 0.75, "b": 0.25})
    calls = simulated_calls(np.random.default_rng(1), pairs=3, effect=0.0, noise=Noise())
    unknown = (WorkloadClass(name="chat"), WorkloadClass(name="idle"))
    assert reach.shares(bare(workloads=unknown, observations=observed(*calls))) == (
        ("chat", 1.0),
        ("idle", 0.0),
    )
    assert reach.shares(bare(workloads=unknown)) == (("chat", 0.5), ("idle", 0.5))


def test_answers_count_at_the_lengths_a_workload_has() -> None:
    classes = (
        WorkloadClass(name="short", gpu_time_share=0.05, context_tokens=np.full(9, 4_000.0)),
        WorkloadClass(
            name="chat", gpu_time_share=0.5, context_tokens=np.linspace(9_200, 20_000, 99)
        ),
        WorkloadClass(name="agents", gpu_time_share=0.45, context_tokens=np.full(9, 200_000.0)),
    )
    found = {
        each.workload: (each.estimate.n, each.lengths)
        for each in by_workload(compared(effect=0.0, workloads=classes), Policy())
    }
    assert found == {
        None: (
            471,
            (16384.0, 32768.0, 131072.0),
        ),  # what the classes of a tenth or more need; unequal weights cost items
        "short": (200, (8192.0,)),
        "chat": (
            271,
            (16384.0, 32768.0),
        ),  # nothing shorter than nine calls in ten, then the first length that covers 20k
        "agents": (200, (131072.0,)),  # as far as was asked
    }


def test_buckets_that_the_reference_cannot_answer_count_for_nothing() -> None:
    evidence = compared(effect=0.0)
    blind = replace(evidence.accuracy[-1], both=4, reference_only=0, arm_only=0, neither=196)
    (server, chat) = by_workload(
        replace(evidence, accuracy=(*evidence.accuracy[:-1], blind)), Policy()
    )
    assert (server.estimate.n, server.lengths[-1], chat.asked_to) == (955, 98304.0, 98304.0)


def test_the_worst_bucket_is_the_one_that_is_surest_to_fall() -> None:
    sure = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192.0,
        both=300,
        reference_only=60,
        arm_only=2,
        neither=38,
    )
    few = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=16384.0,
        both=6,
        reference_only=3,
        arm_only=1,
        neither=0,
    )
    (server, _) = by_workload(bare(accuracy=(sure, few)), Policy())
    assert server.worst.context_tokens == 8192.0


def test_counted_and_graded_answers_pool() -> None:
    rng = np.random.default_rng(2)
    base = rng.uniform(0.2, 0.9, 300)
    graded = AccuracyBucket(
        arm="fp8",
        task="mrcr",
        context_tokens=8192.0,
        both=0,
        reference_only=0,
        arm_only=0,
        neither=0,
        reference_scores=base,
        arm_scores=base - 0.02 + rng.normal(0, 0.02, 300),
    )
    counted = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192.0,
        both=97,
        reference_only=2,
        arm_only=0,
        neither=1,
    )
    (server, _) = by_workload(bare(accuracy=(graded, counted)), Policy())
    assert server.estimate.value == pytest.approx(-0.02, abs=0.003)
    assert server.estimate.n == 400


def test_answers_that_all_agree_on_a_handful_of_items_are_no_proof() -> None:
    def bucket(items: int) -> AccuracyBucket:
        scores = np.ones(items * 4)
        clusters = np.repeat(np.arange(items), 4)
        return AccuracyBucket(
            arm="fp8",
            task="needle",
            context_tokens=8192.0,
            both=items * 4,
            reference_only=0,
            arm_only=0,
            neither=0,
            reference_scores=scores,
            arm_scores=scores,
            clusters=clusters,
        )

    few, many = (by_workload(bare(accuracy=(bucket(items),)), Policy())[0] for items in (10, 400))
    assert (few.estimate.n, many.estimate.n) == (
        21,
        842,
    )  # 40 and 1,600 answers resemble their neighbours by 0.3
    assert few.p_not_worse > 0.2
    assert many.p_not_worse < 0.01


def test_the_reach_of_the_mix_weighs_its_classes() -> None:
    evidence = compared(
        effect=0.0,
        workloads=(
            WorkloadClass(name="chat", gpu_time_share=0.5, context_tokens=np.full(10, 20_000.0)),
            WorkloadClass(
                name="long", gpu_time_share=0.5, context_tokens=np.array([20_000.0, 200_000.0])
            ),
        ),
    )
    found = {each.workload: each.beyond_share for each in assess(evidence, Policy()).reach}
    assert found == {None: 0.25, "chat": 0.0, "long": 0.5}


def test_contexts_fall_back_on_what_was_replayed() -> None:
    evidence = compared(effect=0.0, workloads=(WorkloadClass(name="chat"),))
    found = reach.contexts(evidence, "chat")
    assert found is not None
    assert found.size == 480
    assert reach.contexts(bare(workloads=(WorkloadClass(name="idle"),)), "idle") is None


def test_break_even_comes_from_the_replay_where_no_sweep_was_made() -> None:
    rng = np.random.default_rng(3)
    reference, arm = simulated_calls(
        rng, pairs=12, sessions=10, turns=10, effect=0.0, noise=Noise()
    )
    held = np.exp(rng.uniform(np.log(2_000), np.log(200_000), len(arm)))
    scatter = np.exp(rng.normal(0, 0.01, (2, len(arm))))
    evidence = compared(
        effect=0.0,
        observations=observed(
            replace(reference, batch_kv_tokens=held, tpot_ms=(6.44 + 4.37e-5 * held) * scatter[0]),
            replace(arm, batch_kv_tokens=held, tpot_ms=(6.58 + 2.37e-5 * held) * scatter[1]),
        ),
        priors=(
            Prior(
                what="break_even_tokens",
                arm="fp8",
                value=7010.0,
                unit="tokens",
                source="vLLM blog 2026-04-22",
            ),
        ),
    )
    (found,) = lines.break_evens(evidence, (("chat", 1.0),), Policy())
    assert found.shape == "bounded"
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 7000 <= found.high
    assert found.own_tokens == pytest.approx((found.tokens or 0) / 4)
    assert found.prior_tokens == 7010.0


def _named(evidence: Evidence, policy: Policy | None = None) -> dict[tuple[str, str | None], float]:
    return {
        (each.name, each.workload): each.estimate.value
        for each in figures.figures(evidence, policy or Policy())
        if each.arm == "fp8"
    }


def test_the_evidence_table_holds_latencies_throughput_cost_and_facts() -> None:
    evidence = compared(effect=-0.1, pairs=20)
    found = _named(
        replace(evidence, server=(("fp8", Telemetry(watts=500.0, hit_rate=0.6)),)),
        Policy(slos=(ServiceLimits(turn_ms=6000.0),)),
    )
    assert {name for name, workload in found if workload is None} == {
        "pool_tokens",
        "output_tokens_per_s",
        "requests_per_s",
        "goodput_per_s",
        "usd_per_mtok",
        "usd_per_turn",
        "joule_per_token",
        "hit_rate",
        "watts",
    }
    assert found["usd_per_mtok", None] == pytest.approx(
        3.0 / 3600 / found["output_tokens_per_s", None] * 1e6
    )
    assert found["joule_per_token", None] == pytest.approx(500 / found["output_tokens_per_s", None])
    assert found["goodput_per_s", None] == pytest.approx(
        found["requests_per_s", None] * found["within_slo", "chat"], rel=0.02
    )
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    assert found["turn_ms.p50", "chat"] == pytest.approx(float(np.median(calls.turn_ms)), rel=0.01)


RATES = (
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "within_slo",
    "usd_per_mtok",
    "usd_per_turn",
)


@pytest.mark.parametrize("pairs", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("limit", [1.0, 3000.0, 6000.0, 1e9])
def test_rates_and_shares_have_intervals_that_can_be_and_none_below_four_blocks(
    pairs: int, limit: float
) -> None:
    wild = Noise(call=0.4, block=1.5)
    evidence = compared(effect=0.0, pairs=pairs, noise=wild)
    for each in figures.figures(evidence, Policy(slos=(ServiceLimits(turn_ms=limit),))):
        found = each.estimate
        if each.name not in RATES:
            continue
        assert (found.low is None, found.high is None) == (
            pairs < 4 or found.value == 0 != found.low,
        ) * 2
        if found.low is not None and found.high is not None:
            assert 0 <= found.low <= found.value <= found.high
            assert found.unit != "share" or found.high <= 1


def test_a_rate_over_blocks_covers_its_mean() -> None:
    rng, truth = np.random.default_rng(9), float(np.exp(0.3**2 / 2))
    found = [
        figures.rate(rng.lognormal(0.0, 0.3, 6), unit="requests/s", method="blocks")
        for _ in range(600)
    ]
    covered = [
        each is not None
        and each.low is not None
        and each.high is not None
        and each.low <= truth <= each.high
        for each in found
    ]
    assert 0.92 <= np.mean(covered) <= 0.98


def test_an_arm_that_is_split_over_more_gpus_costs_them_all() -> None:
    evidence = compared(effect=-0.1, pairs=20)
    split = replace(
        evidence,
        arms=tuple(replace(arm, gpus=2) if arm.name == "fp8" else arm for arm in evidence.arms),
    )
    one, two = _named(evidence), _named(split)
    for name in ("usd_per_mtok", "usd_per_turn"):
        assert two[name, None] == pytest.approx(2 * one[name, None])


def test_a_tail_does_not_dilute_throughput() -> None:
    evidence = compared(effect=0.0, pairs=4)
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    last = np.arange(len(calls)) % 30 == 29
    slow = replace(calls, turn_ms=np.where(last, 500_000.0, calls.turn_ms))
    marked = replace(slow, tail=last)
    diluted, clean = (
        _named(replace(evidence, observations=observed(calls, each)))["requests_per_s", None]
        for each in (slow, marked)
    )
    assert clean > 10 * diluted


def test_blocks_that_only_drain_state_no_throughput() -> None:
    evidence = compared(effect=0.0, pairs=4)
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    draining = replace(calls, tail=np.arange(len(calls)) % 10 > 0)
    found = _named(replace(evidence, observations=observed(calls, draining)))
    assert ("output_tokens_per_s", None) not in found
    assert ("turn_ms.p50", "chat") in found


def test_a_sweep_that_fails_its_gate_gives_no_line_and_spoils_no_replay() -> None:
    evidence = compared(effect=-0.1)
    reference, arm = sweeps()
    halved = replace(reference, itl_ms=6.4 + (reference.itl_ms - 6.4) / 2)
    case = assess(replace(evidence, sweeps=(halved, arm)), Policy())
    assert [line.arm for line in case.itl] == ["fp8"]
    assert case.break_even == ()
    assert case.speed("fp8", "chat") is not None


def test_too_few_sessions_leave_a_quantile_out_instead_of_guessing_it() -> None:
    found = _named(compared(effect=0.0, pairs=4))  # 24 sessions: enough for a median, not for a p95
    assert ("turn_ms.p50", "chat") in found
    assert ("turn_ms.p95", "chat") not in found


def test_a_session_that_is_played_again_is_no_new_one() -> None:
    reference, arm = simulated_calls(np.random.default_rng(3), pairs=20, effect=0.0, noise=Noise())
    again = [replace(calls, session=calls.session % 6) for calls in (reference, arm)]
    assert ("turn_ms.p95", "chat") in _named(bare(observations=observed(reference, arm)))
    assert ("turn_ms.p95", "chat") not in _named(
        bare(observations=observed(*again))
    )  # 6 sessions, 20 times each


def test_needs_are_paths_that_have_to_lead_somewhere() -> None:
    case = assess(bare(), Policy())
    assert missing(case, frozenset({"evidence.arms.kernel", "evidence.model.window_layers"})) == ()
    assert missing(case, frozenset({"itl.bandwidth_tb_s", "evidence.priors"})) == (
        "evidence.priors",
        "itl.bandwidth_tb_s",
    )
    assert missing(assess(bare(sweeps=sweeps()), Policy()), frozenset({"itl.bandwidth_tb_s"})) == ()


@pytest.mark.parametrize("arms", [(BF16, FP8), (BF16, FP8, replace(FP8, name="fp8-other"))])
def test_answers_that_came_in_planned_looks_are_judged_at_the_level_of_each_and_speed_is_not(
    arms: tuple[Arm, ...],
) -> None:
    once = compared(seed=1, effect=-0.1, items=40, arms=arms)
    looked = assess(replace(once, planned_answers=True), Policy())
    planned, alone = assess(once, Policy(planned_looks=True)), assess(once, Policy())
    assert (looked.accuracy, looked.buckets) == (planned.accuracy, planned.buckets)
    assert [each.estimate.level for each in looked.accuracy] == pytest.approx(
        [1 - 2 * 0.0045 / (len(arms) - 1)] * 2
    )
    assert [each.estimate.level for each in alone.accuracy] == pytest.approx(
        [1 - 2 * 0.025 / (len(arms) - 1)] * 2
    )
    assert looked.level_of_answers == planned.level_of_answers < alone.level_of_answers
    assert looked.level("fp8") == alone.level("fp8") > planned.level("fp8")


@pytest.mark.parametrize(
    ("at", "lost", "good_to"), [(3, 60, 16384.0), (1, 60, 4096.0), (0, 60, None), (3, 4, None)]
)
def test_answers_are_good_up_to_the_longest_length_beyond_which_they_are_surely_worse(
    at: int, lost: int, good_to: float | None
) -> None:
    asked = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=4096.0,
        both=94,
        reference_only=3,
        arm_only=3,
        neither=0,
    )
    buckets = [replace(asked, context_tokens=4096.0 * 2**each) for each in range(4)]
    buckets[at] = replace(buckets[at], both=97 - lost, reference_only=lost)
    found = accuracy._good_to(buckets, Policy(), 0.025)
    assert (None if found is None else found.context_tokens) == good_to


@pytest.mark.parametrize(
    ("shares", "beyond"), [((0.5, 0.5), 0.3), ((0.75, 0.25), 0.35), ((0.2, 0.2), 0.3)]
)
def test_what_lies_beyond_the_tested_lengths_is_weighed_over_classes_that_are_known(
    shares: tuple[float, float], beyond: float
) -> None:
    lengths = {
        "a": np.where(np.arange(10) < 4, 99_000.0, 1000.0),
        "b": np.where(np.arange(10) < 2, 99_000.0, 1000.0),
        "c": None,
    }
    classes = tuple(WorkloadClass(name=name, context_tokens=each) for name, each in lengths.items())
    evidence = bare(workloads=classes)
    asked = tuple(
        replace(
            assess(compared(effect=0.0, items=20), Policy()).accuracy[0],
            workload=name,
            asked_to=8192.0,
        )
        for name in "abc"
    )
    found = reach.reaches(evidence, tuple(zip("abc", (*shares, 0.1), strict=True)), asked)
    assert [each.beyond_share for each in found] == [pytest.approx(beyond), 0.4, 0.2, None]


@pytest.mark.parametrize(("restarts", "level"), [(1, 0.017), (12, 0.0037)])
def test_a_planned_look_at_servers_that_started_once_pays_for_one_error(
    restarts: int, level: float
) -> None:
    found = assess(
        compared(effect=0.0, pairs=12, restarts=restarts), Policy(planned_looks=True)
    ).speed("fp8", None)
    assert found is not None
    assert found.change.relative.level == pytest.approx(1 - 2 * level)
