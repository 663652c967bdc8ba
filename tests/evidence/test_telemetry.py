from pathlib import Path

import pytest

from advisor.evidence import Phase, Telemetry
from agentload.evidence.gather import _plays_part
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.controls import control_of
from agentload.model.rows import Row, SampleRow
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Load, Virtual
from tests.evidence.runs import (
    ARMS,
    NEVER_SENT,
    OTHER,
    STUDY,
    S,
    arm,
    block,
    call,
    calls,
    column,
    evidence,
    leg,
    pair_of_blocks,
    run,
)


def test_samples_count_only_while_the_arm_was_played(tmp_path: Path) -> None:
    def sample(at_s: float, name: str, value: float) -> SampleRow:
        return SampleRow(
            run_id="r1", leg=1, arm="bf16", at_ns=round(at_s * S), name=name, value=value
        )

    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, cached_tokens=None),  # a server that does not say it of each call
        *OTHER,
        # The pool is full for 25 of the block's 100 seconds, and again while the other arm plays.
        *(
            sample(at, "kv_usage", value)
            for at, value in ((0, 0.2), (50, 0.97), (75, 0.5), (250, 1.0))
        ),
        # The server started again between 60 s and 120 s; what others did later is not ours.
        *(sample(at, "preemptions", value) for at, value in ((0, 5), (60, 8), (120, 2), (300, 90))),
        *(sample(at, "prefix_queries", value) for at, value in ((0, 0), (100, 400))),
        *(sample(at, "prefix_hits", value) for at, value in ((0, 0), (100, 100))),
        *(sample(at, "external_queries", value) for at, value in ((0, 10), (100, 90))),
        *(sample(at, "external_hits", value) for at, value in ((0, 10), (100, 50))),
        *(sample(at, "rejections", value) for at, value in ((0, 1), (100, 4))),
        *(sample(at, "queue_s_sum", value) for at, value in ((0, 7.0), (100, 8.0))),
        *(sample(at, "queue_s_count", value) for at, value in ((0, 10), (100, 14))),
        *(sample(at, "prefill_s_sum", value) for at, value in ((0, 7.0), (100, 7.0))),
        *(
            sample(at, "prefill_s_count", value) for at, value in ((0, 10), (100, 10))
        ),  # none in this time
    ]
    assert dict(evidence(tmp_path, rows).server)["bf16"] == Telemetry(
        peak_kv_usage=0.97,
        pool_filled_share=0.25,
        preemptions=5.0,
        minutes=100 / 60,
        hit_rate=0.25,
        external_hit_rate=0.5,
        rejections=3.0,
        phases=(Phase(name="queue", mean_ms=250.0, count=4),),
        sent_tokens=1005.0,
    )


def test_counters_leave_out_the_priming_calls_as_the_timings_beside_them_do(tmp_path: Path) -> None:
    counted = (
        (0, 0.0, 0),
        (40, 40.0, 10),  # of priming calls
        (60, 41.0, 12),  # of a priming call and the load's first
        (100, 41.2, 14),
    )
    samples = [
        SampleRow(run_id="r1", leg=1, arm="bf16", at_ns=at * S, name=name, value=float(value))
        for at, seconds, calls in counted
        for name, value in (("ttft_s_sum", seconds), ("ttft_s_count", calls))
    ]
    rows = [block("bf16", 0, 0, primed_ns=50 * S), call("bf16", 0, 60), *OTHER, *samples]
    figures = evidence(tmp_path, rows).telemetry(None, "bf16")
    assert figures is not None
    (phase,) = figures.phases
    assert (phase.name, phase.count) == ("first-token", 2)
    assert phase.mean_ms == pytest.approx(100.0)


def test_what_was_said_of_each_call_wins_over_counters_that_begin_and_end_beside_the_blocks(
    tmp_path: Path,
) -> None:
    counters = (
        ("prefix_queries", 0, 0),
        ("prefix_queries", 100, 4000),
        ("prefix_hits", 0, 0),
        ("prefix_hits", 100, 2000),
    )
    samples = [
        SampleRow(run_id="r1", leg=1, arm="bf16", at_ns=at * S, name=name, value=float(value))
        for name, at, value in counters
    ]
    rows = [block("bf16", 0, 0), call("bf16", 0, 1, cached_tokens=300), *OTHER, *samples]
    figures = evidence(tmp_path, rows).telemetry(None, "bf16")
    assert figures is not None
    assert figures.hit_rate == 0.3


def test_a_context_sweep_is_no_load_on_the_server(tmp_path: Path) -> None:
    def samples(at_s: float, **values: float) -> list[SampleRow]:
        return [
            SampleRow(run_id="r1", leg=1, arm="bf16", at_ns=round(at_s * S), name=name, value=value)
            for name, value in values.items()
        ]

    swept: list[Row] = [block(name, 1, at) for name, at in (("bf16", 400), ("fp8", 600))]
    swept += [
        call(name, 1, at, workload=CONTEXT_SWEEP, cached_tokens=0)
        for name, at in (("bf16", 401), ("fp8", 601))
    ]
    seen = [
        *samples(50, kv_usage=0.3, running=2, gpu_power_w=300),
        *samples(450, kv_usage=0.9, running=1, gpu_power_w=100),
    ]
    (tmp_path / "alone").mkdir()
    beside = evidence(tmp_path, [*pair_of_blocks(), *swept, *seen]).telemetry(None, "bf16")
    alone = evidence(tmp_path / "alone", [*swept, *seen]).telemetry(None, "bf16")
    assert beside is not None
    assert alone is not None
    assert (beside.peak_kv_usage, beside.running_max, beside.minutes, beside.watts) == (
        0.3,
        2.0,
        100 / 60,
        300.0,
    )
    assert (alone.peak_kv_usage, alone.minutes, alone.watts) == (0.9, 100 / 60, 100.0)


def test_all_that_was_sent_to_a_server_went_through_its_cache_evidence_or_not(
    tmp_path: Path,
) -> None:
    sent = {"prompt_tokens": 1000, "output_tokens": 5}
    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, "s1", **sent),
        call("bf16", 0, 2, "s2", **sent, status="cancelled"),
        call("bf16", 0, 3, "s3", **sent, prime=True),
        call(
            "bf16",
            0,
            4,
            "s4",
            prompt_tokens=None,
            context_tokens=2000,
            output_tokens=None,
            status="http_error",
        ),
        call("bf16", 0, 5, "s5", context_tokens=9000, **NEVER_SENT),
        block("bf16", 0, 200, warmup=True),
        call("bf16", 0, 201, "s1", **sent),
        block("bf16", 1, 400, void="the server changed"),
        call("bf16", 1, 401, "s1", **sent),
        call(control_of("bf16"), 1, 501, "s1", **sent),  # the same server under another name
        *OTHER,
    ]
    figures = evidence(tmp_path, rows).telemetry(None, "bf16")
    assert figures is not None
    assert figures.sent_tokens == 6 * 1005 + 2000


def test_counts_as_large_as_a_server_may_claim_are_added_up(tmp_path: Path) -> None:
    most = 2**31 - 1
    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, prompt_tokens=most, cached_tokens=most, output_tokens=most),
        *OTHER,
    ]
    figures = evidence(tmp_path, rows).telemetry(None, "bf16")
    assert figures is not None
    assert figures.sent_tokens == 2 * most


def test_hit_rates_are_measured_beside_the_ideal_and_hits_before_any_salted_call_are_impossible(
    tmp_path: Path,
) -> None:
    rows = [
        block("bf16", 0, 0),
        # The first call of a salt may hit the 24 tokens of the chat
        # template, and 32 with which its first schema begins, no more.
        call("bf16", 0, 1, "s1", prompt_tokens=1024, cached_tokens=64),
        call("bf16", 0, 2, "s2", prompt_tokens=1024, cached_tokens=512),
        *OTHER,
    ]
    found = evidence(tmp_path, rows, ideal_hit_rates={"rag": 0.5})
    assert found.telemetry("rag", "bf16") == Telemetry(hit_rate=576 / 2048, ideal_hit_rate=0.5)
    server = found.telemetry(None, "bf16")
    assert server is not None
    assert server.impossible_hits == 40.0
    described = [
        run(extend(STUDY, cache="warm"), ideal_hit_rates={"rag": 0.4}),
        leg(),
        *(arm(name, place) for place, name in enumerate(ARMS)),
    ]
    (tmp_path / "warm").mkdir()
    warm = evidence(tmp_path / "warm", [*described, *rows], described=False)
    assert warm.telemetry("rag", "bf16") == Telemetry(hit_rate=576 / 2048, ideal_hit_rate=0.4)
    # One salt for the whole run: the first call of a block may well hit.
    assert [figures.impossible_hits for _, figures in warm.server] == [None, None]
    assert column(calls(found).computed_tokens) == [960.0, 512.0]


@pytest.mark.parametrize(
    ("load", "is_part"),
    [(Load(), False), (Load(max_calls=12), True), (Load(duration_s=60.0), True)],
)
def test_what_a_whole_plan_could_hit_bounds_no_part_of_it(load: Load, *, is_part: bool) -> None:
    study = Replay(traces=(), servers=Virtual(profile="p"), load=load)
    assert _plays_part(study) is is_part


def test_a_block_of_what_every_request_begins_with_is_no_impossible_hit(tmp_path: Path) -> None:
    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, "s1", prompt_tokens=1024, cached_tokens=48),
        *OTHER,
    ]
    server = evidence(tmp_path, rows).telemetry(None, "bf16")
    assert server is not None
    assert server.impossible_hits == 0.0


def test_of_calls_sent_together_the_server_may_take_any_first_so_one_without_a_hit_clears_all(
    tmp_path: Path,
) -> None:
    together = [
        call("bf16", 0, 1.0, "s1", prompt_tokens=1000, cached_tokens=288),
        call("bf16", 0, 1.0001, "s2", prompt_tokens=1000, cached_tokens=0),
        call("bf16", 0, 1.0002, "s3", prompt_tokens=1000, cached_tokens=304),
    ]
    for folder, rows, hits in (("one", together, 0.0), ("none", [together[0], together[2]], 288.0)):
        (tmp_path / folder).mkdir()
        server = evidence(tmp_path / folder, [block("bf16", 0, 0), *rows, *OTHER]).telemetry(
            None, "bf16"
        )
        assert server is not None
        assert server.impossible_hits == hits
