import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from advisor.evidence import ClientHealth
from agentload.errors import EvidenceError
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.model.controls import SAME
from agentload.model.profile import ArmProfile
from agentload.model.rows import Row
from agentload.model.stamps import stamps
from agentload.run.servers import arms_of
from agentload.study.change import extend
from tests.evidence.runs import (
    ARMS,
    MS,
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
    fingerprint,
    leg,
    pair_of_blocks,
    run,
    stored,
)


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
        "lost": 0,
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


def test_a_turn_is_lost_if_it_was_sent_and_its_request_was_not_refused(tmp_path: Path) -> None:
    ends = {
        "s1": {"status": "ok"},
        "s2": NEVER_SENT,
        "s3": {"status": "reset", "http_status": None},
        "s4": {"status": "http_error", "http_status": 400},  # longer than the server takes
        "s5": {"status": "http_error", "http_status": 500},
        "s6": {"status": "busy", "http_status": 503},
    }
    rows = [
        block("bf16", 0, 0),
        *(call("bf16", 0, at, name, **end) for at, (name, end) in enumerate(ends.items(), 1)),
        *OTHER,
    ]
    found = calls(evidence(tmp_path, rows))
    assert found.lost is not None
    assert found.lost.tolist() == [False, False, True, False, True, True]


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
