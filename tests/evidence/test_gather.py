import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from advisor.evidence import Calls, ClientHealth, Evidence, Phase, Telemetry
from agentload.errors import EvidenceError
from agentload.evidence.gather import _plays_part, gather
from agentload.evidence.view import run_view
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.controls import SAME, control_of
from agentload.model.profile import ArmProfile
from agentload.model.rows import Row, SampleRow
from agentload.model.stamps import stamps
from agentload.run.servers import arms_of
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Load, Virtual
from tests.evidence.runs import (
    ARMS,
    MS,
    NEVER_SENT,
    STUDY,
    S,
    arm,
    block,
    call,
    fingerprint,
    leg,
    pair_of_blocks,
    run,
    stored,
)

OTHER: list[Row] = [block("fp8", 0, 200), call("fp8", 0, 201)]


def evidence(
    folder: Path, rows: Sequence[object], *, described: bool = True, **options: Any
) -> Evidence:
    with stored(folder, rows, described=described) as connection:
        return gather(connection, run_view(connection, "r1"), **options)


def calls(found: Evidence, name: str = "bf16") -> Calls:
    kept = found.calls("rag", name)
    assert kept is not None
    return kept


def column(values: object) -> list[float | None]:
    return [
        None if np.isnan(each) else round(float(each), 6)
        for each in np.asarray(values, dtype=np.float64)
    ]


def test_a_turn_becomes_one_row_with_its_latencies_in_ms(tmp_path: Path) -> None:
    found = calls(evidence(tmp_path, pair_of_blocks()))
    row = {
        each.name: None if (value := getattr(found, each.name)) is None else column(value)[0]
        for each in fields(found)
    }
    assert row == {
        "restart": 0,
        "pair": 0,
        "block": 0,
        "session": 0,
        "turn": 0,
        "start_s": 1.03,
        "ok": 1,
        "ttft_ms": 110.0,
        "tpot_ms": 20.0,
        "turn_ms": 191.0,
        "prompt_tokens": 1000,
        "output_tokens": 5,
        "computed_tokens": 1000,
        "asked_tokens": 5,
        "batch_kv_tokens": 1002.5,
        "machine": None,
        "wait_s": None,
        "tail": 0,
        "turns_left": None,
        "right": None,
    }


@pytest.mark.parametrize(
    ("load", "ttft_ms", "turn_ms"),
    [
        ({}, 110.0, 191.0),
        ({"rate_per_s": 1.0}, 110.0, 191.0),
        ({"rate_per_s": 1.0, "max_in_flight": 8}, 80.0, 161.0),
        ({"sessions": 2}, 80.0, 161.0),
    ],
)
def test_latency_counts_from_due_in_open_loop_and_from_released_where_we_held_it_back(
    load: dict[str, Any], ttft_ms: float, turn_ms: float, tmp_path: Path
) -> None:
    rows = [
        run(extend(STUDY, **load)),
        leg(),
        *(arm(name, place) for place, name in enumerate(ARMS)),
        *pair_of_blocks(),
    ]
    found = calls(evidence(tmp_path, rows, described=False))
    assert (column(found.ttft_ms), column(found.turn_ms)) == ([ttft_ms], [turn_ms])


def test_tokens_of_the_first_chunk_took_no_time_between_them(tmp_path: Path) -> None:
    # Four tokens a chunk, a chunk each 80 ms: a token takes 20 ms, a chunk gap is 80.
    first = 1 * S + 110 * MS
    bunched = call(
        "bf16",
        0,
        1,
        output_tokens=12,
        last_ns=first + 160 * MS,
        chunks=stamps([first, first + 80 * MS, first + 160 * MS], [4, 4, 4]),
    )
    found = calls(evidence(tmp_path, [block("bf16", 0, 0), bunched, *OTHER]))
    assert column(found.tpot_ms) == [20.0]


def test_a_single_token_has_no_token_latency(tmp_path: Path) -> None:
    first = 1 * S + 110 * MS
    short = call("bf16", 0, 1, output_tokens=1, last_ns=first, chunks=stamps([first], [1]))
    found = calls(evidence(tmp_path, [block("bf16", 0, 0), short, *OTHER]))
    assert (column(found.tpot_ms), column(found.batch_kv_tokens)) == ([None], [None])


def test_a_turn_sent_again_counts_once_from_the_first_attempt(tmp_path: Path) -> None:
    busy = call(
        "bf16",
        0,
        1,
        **{**NEVER_SENT, "status": "busy", "sent_ns": 1 * S + 31 * MS, "http_status": 503},
    )
    again = call("bf16", 0, 3, attempt=1, retry_of=busy.request_id)
    found = calls(evidence(tmp_path, [block("bf16", 0, 0), busy, again, *OTHER]))
    assert (found.ok.tolist(), column(found.start_s), column(found.turn_ms)) == (
        [True],
        [1.03],
        [2191.0],
    )


def test_what_was_not_sent_is_a_dropped_turn_and_what_was_cancelled_by_plan_is_none(
    tmp_path: Path,
) -> None:
    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, "s1"),
        call("bf16", 0, 2, "s2", **NEVER_SENT),
        call("bf16", 0, 3, "s3", status="cancelled"),
        *OTHER,
    ]
    found = calls(evidence(tmp_path, rows))
    assert (found.ok.tolist(), column(found.ttft_ms), column(found.prompt_tokens)) == (
        [True, False],
        [110.0, None],
        [1000, None],
    )


def test_turns_that_failed_alike_on_every_arm_are_told(tmp_path: Path) -> None:
    rows: list[Row] = [
        row
        for arm, at in (("bf16", 0), ("fp8", 200))
        for row in (
            block(arm, 0, at),
            call(arm, 0, at + 1, "s1"),
            call(arm, 0, at + 2, "s2", status="http_error", http_status=400),
        )
    ]
    assert (
        "50.0% of the turns of rag failed on bf16, fp8 (http_error): the figures are of the others"
        in evidence(tmp_path, rows).notes
    )


def test_where_every_turn_failed_no_figures_of_others_are_promised(tmp_path: Path) -> None:
    rows: list[Row] = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, "s1", status="http_error", http_status=400),
        *OTHER,
    ]
    assert "every turn of rag failed on bf16 (http_error)" in evidence(tmp_path, rows).notes


def test_the_same_turn_has_the_same_names_on_every_arm(tmp_path: Path) -> None:
    rows: list[Row] = [block("bf16", 0, 0), block("fp8", 0, 200)]
    rows += [
        call("bf16", 0, 1 + k, name, turn)
        for k, (name, turn) in enumerate([("b", 0), ("a", 0), ("a", 1)])
    ]
    rows += [
        call("fp8", 0, 201 + k, name, turn)
        for k, (name, turn) in enumerate([("a", 0), ("c", 0), ("a", 1), ("b", 0)])
    ]
    found = evidence(tmp_path, rows)
    assert [calls(found, name).session.tolist() for name in ARMS] == [[0, 0, 1], [0, 0, 1, 2]]
    assert [calls(found, name).turn.tolist() for name in ARMS] == [[0, 1, 0], [0, 1, 0, 0]]


def test_equal_rows_in_any_order_give_equal_evidence(tmp_path: Path) -> None:
    rows = [row for pair in range(4) for row in pair_of_blocks(pair, 400 * pair)]
    seen = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        random.Random(number).shuffle(rows)
        found = calls(evidence(folder, rows))
        columns = [each.name for each in fields(found) if each.name != "machine"]
        seen.append(
            {name: np.nan_to_num(np.asarray(getattr(found, name))).tolist() for name in columns}
        )
    assert seen[0] == seen[1]
    assert seen[0]["pair"] == [0, 1, 2, 3]


def test_calls_of_void_blocks_are_left_out_and_the_blocks_counted(tmp_path: Path) -> None:
    void = [
        block("bf16", 1, 400, void="clock drop"),
        call("bf16", 1, 401),
        block("fp8", 1, 600),
        call("fp8", 1, 601),
    ]
    found = evidence(tmp_path, [*pair_of_blocks(), *void])
    assert (calls(found).pair.tolist(), found.notes) == (
        [0],
        ("2 of 4 blocks left out (pair 1): clock drop",),
    )
    assert [(each.arm, each.blocks, each.void_blocks) for each in found.health] == [
        ("bf16", 2, 1),
        ("fp8", 2, 0),
    ]


def test_a_pair_played_twice_on_one_leg_gives_only_the_calls_of_its_second_play(
    tmp_path: Path,
) -> None:
    first = [
        block("bf16", 0, 0, void="restarted"),
        call("bf16", 0, 1),
        block("fp8", 0, 200),
        call("fp8", 0, 201),
    ]
    second = [
        block("fp8", 0, 400, salt="0~1"),
        call("fp8", 0, 402),
        block("bf16", 0, 600, salt="0~1"),
        call("bf16", 0, 602),
    ]
    found = evidence(tmp_path, [*first, *second])
    assert [column(calls(found, name).start_s) for name in ARMS] == [[602.03], [402.03]]


def test_the_batch_is_all_that_decodes_on_the_arm_void_or_not(tmp_path: Path) -> None:
    rows = [
        block("bf16", 0, 0),
        call("bf16", 0, 1, "s1"),
        call("bf16", 0, 1, "s2", workload="chat", prompt_tokens=3000),
        *OTHER,
    ]
    found = evidence(tmp_path, rows)
    assert column(calls(found).batch_kv_tokens) == [4005.0]
    assert [(each.name, each.batch, each.gpu_time_share) for each in found.workloads] == [
        ("chat", 2.0, 0.5),
        ("rag", 2.0, 0.5),
    ]


def test_health_names_our_lag_stalls_and_shared_stamps(tmp_path: Path) -> None:
    rows = [
        run(),
        leg(health={"loop_stall_max_ms": 12.5, "void": None}),
        *(arm(name, place) for place, name in enumerate(ARMS)),
        block("bf16", 0, 0),
        call("bf16", 0, 1, coalesced_reads=2),
        *OTHER,
    ]
    assert evidence(tmp_path, rows, described=False).health[0] == ClientHealth(
        arm="bf16",
        send_lag_p99_ms=1.0,
        loop_stall_max_ms=12.5,
        coalesced_share=0.4,
        stamp_source="kernel",
        void_blocks=0,
        blocks=1,
        limited_share=0.0,
    )


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["thread", "thread"], "thread"),
        (["thread", "interpreter"], "interpreter"),
        ([None, "thread"], "thread"),
        ([None, None], None),
    ],
)
def test_health_names_who_read_the_sockets_in_all_parts(
    tmp_path: Path, paths: list[str | None], said: str | None
) -> None:
    rows = [
        run(),
        *(leg(number, health={"read_path": path}) for number, path in enumerate(paths, start=1)),
        *(arm(name, place) for place, name in enumerate(ARMS)),
        block("bf16", 0, 0),
        call("bf16", 0, 1),
        block("bf16", 1, 0, leg=2),
        call("bf16", 1, 1, leg=2),
        block("fp8", 1, 200, leg=2),
        call("fp8", 1, 201, leg=2),
        *OTHER,
    ]
    assert evidence(tmp_path, rows, described=False).health[0].read_path == said


def test_servers_are_described_by_what_they_said(tmp_path: Path) -> None:
    facts = {
        "version": "0.33.0",
        "kv_cache_dtype": "fp8",
        "skip_layers": "['sliding_window']",
        "prefix_caching": "True",
    }
    rows = [
        fingerprint(
            "fp8",
            0,
            **facts,
            pool_tokens="1048576",
            max_concurrency="128.0",
            max_model_len=8192,
            attention_backend="FLASHINFER",
        ),
        fingerprint(
            "bf16",
            0,
            skip_layers="None",
            kv_cache_dtype="auto",
            prefix_caching="False",
            max_concurrency="None",
        ),
        *pair_of_blocks(),
    ]
    found = evidence(tmp_path, rows, reference="fp8")
    fp8, bf16 = found.arm("fp8"), found.arm("bf16")
    assert (fp8.observed_dtype, fp8.skip_layers, fp8.prefix_caching) == (
        "fp8",
        ("sliding_window",),
        True,
    )
    assert (fp8.kernel, fp8.pool_tokens, fp8.max_concurrency) == ("FLASHINFER", 1048576.0, 128.0)
    assert (bf16.observed_dtype, bf16.skip_layers, bf16.prefix_caching, bf16.max_concurrency) == (
        "auto",
        (),
        False,
        None,
    )
    assert (found.deployment.version, found.deployment.max_model_len, found.model.name) == (
        "0.33.0",
        8192,
        "llama",
    )
    assert (found.reference, [each.name for each in found.challengers], found.dated) == (
        "fp8",
        ["bf16"],
        "2025-06-15",
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


def test_prompts_that_are_not_as_long_as_asked_are_told(tmp_path: Path) -> None:
    rows = [block("bf16", 0, 0), call("bf16", 0, 1, prompt_tokens=1031), *OTHER]
    assert evidence(tmp_path, rows).notes == (
        (
            "rag on bf16: the server counts prompts 3.1% longer than asked (median of 1 "
            "calls): give the served model's own tokenizer"
        ),
    )


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "holds nothing to decide on: no block was finished"),
        (
            [block("bf16", 0, 0, void="clock drop"), *OTHER],
            {},
            "holds nothing to decide on: 2 of 2 blocks left out \\(pair 0\\): clock drop",
        ),
        (pair_of_blocks(), {"reference": "nvfp4"}, "has no arm 'nvfp4'"),
    ],
)
def test_a_run_that_carries_no_decision_is_refused_with_the_reason(
    rows: list[Row], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(EvidenceError, match=message):
        evidence(tmp_path, rows, **options)


def test_a_run_of_which_only_its_name_was_kept_holds_nothing(tmp_path: Path) -> None:
    with (
        stored(tmp_path, [run()], described=False) as connection,
        pytest.raises(EvidenceError, match="nothing to decide on: it has no arms"),
    ):
        gather(connection, run_view(connection, "r1"))


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with stored(tmp_path, []) as connection, pytest.raises(EvidenceError, match="no run 'other'"):
        gather(connection, run_view(connection, "other"))


def test_arms_that_are_one_configuration_under_two_names_are_known_as_such(tmp_path: Path) -> None:
    def twins(
        folder: str,
        *,
        caveats: Sequence[str] = (),
        profiles: Mapping[str, ArmProfile] = MappingProxyType({}),
    ) -> list[bool]:
        (tmp_path / folder).mkdir()
        rows = [
            run(caveats=list(caveats)),
            leg(),
            *(arm(name, number) for number, name in enumerate(ARMS)),
            *pair_of_blocks(),
        ]
        return [
            each.twin
            for each in evidence(tmp_path / folder, rows, described=False, profiles=profiles).arms
        ]

    bf16, fp8 = arms_of("llama-3.1-8b-h100")
    assert twins("a") == [False, False]
    assert twins("b", caveats=[f"bf16 and fp8 {SAME}"]) == [False, True]
    assert twins("c", profiles={"bf16": bf16, "fp8": replace(bf16, name="fp8")}) == [False, True]
    assert twins("d", profiles={"bf16": bf16, "fp8": fp8}) == [False, False]
