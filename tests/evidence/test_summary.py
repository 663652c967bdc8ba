from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.evidence.summary import summarise
from agentload.ui.pages.run import run
from agentload.ui.source import Query
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict
from tests.cli.verbs import agentload
from tests.evidence.runs import MS, block, call, pair_of_blocks, stored


def test_a_pair_that_was_played_again_counts_once(tmp_path: Path) -> None:
    first = [
        block("bf16", 0, 0, salt="0"),
        call("bf16", 0, 1),
        block("fp8", 0, 200, salt="0", void="fp8 changed during the block"),
        call("fp8", 0, 201, status="reset", output_tokens=None),
    ]
    again = [
        block("bf16", 0, 400, salt="0~1"),
        call("bf16", 0, 401),
        block("fp8", 0, 600, salt="0~1"),
        call("fp8", 0, 601),
    ]
    with stored(tmp_path, [*first, *again]):
        pass
    found = summarise(tmp_path / "x.duckdb", "r1")
    assert [(arm.arm, arm.calls, arm.ok, arm.failed) for arm in found.arms] == [
        ("bf16", 1, 1, {}),
        ("fp8", 1, 1, {}),
    ]
    assert [arm.left_out for arm in found.arms] == [{"fp8 changed during the block": 1}] * 2
    assert "fp8: not counted: 1 plays, fp8 changed during the block" in found.text()


def test_a_table_of_invalid_timings_says_so_above_its_columns(tmp_path: Path) -> None:
    with stored(tmp_path, pair_of_blocks(0, 0)):
        pass
    found = summarise(tmp_path / "x.duckdb", "r1")
    lines = found.text(invalid="requests left 14.8 ms late").splitlines()
    assert lines[1] == "✗ these timings are invalid: requests left 14.8 ms late"
    assert lines[2].startswith("arm ")
    assert found.text().splitlines()[1] == lines[2]


def test_what_primes_or_warms_up_is_in_no_figure(tmp_path: Path) -> None:
    warm = [
        block("bf16", 9, 900, salt="9", warmup=True),
        call("bf16", 9, 901),
        block("fp8", 9, 1200, salt="9", warmup=True),
    ]
    with stored(tmp_path, [*pair_of_blocks(0, 0), call("bf16", 0, 2, "s2", prime=True), *warm]):
        pass
    found = summarise(tmp_path / "x.duckdb", "r1")
    assert [(arm.calls, arm.left_out) for arm in found.arms] == [(1, {}), (1, {})]


def test_how_calls_failed_is_said_with_what_the_servers_said(tmp_path: Path) -> None:
    said = "133781 prompt and 122 output tokens exceed the model length of 131072"
    more = [
        call("bf16", 0, at, f"s{at}", status="http_error", error=said, output_tokens=None)
        for at in (2, 3)
    ]
    with stored(tmp_path, [*pair_of_blocks(0, 0), *more]):
        pass
    found = summarise(tmp_path / "x.duckdb", "r1")
    assert found.arms[0].errors == {"http_error": said}
    assert f"bf16: 2 http_error, such as: {said}" in found.text()


def test_tokens_a_second_are_those_of_the_report(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    agentload(
        "simulate short_chat --profile llama-3.1-8b-h100 --arms bf16,fp8 --sessions 4 --pairs 3 "
        "--wait-cap user=2 --run-id r",
        db=database,
    )
    decision = verdict(database, "r", setting=Setting()).decision
    reported = {
        each.arm: each.estimate.value
        for each in decision.figures
        if (each.name, each.workload) == ("output_tokens_per_s", None)
    }
    found = {each.arm: each.output_tokens_per_s for each in summarise(database, "r").arms}
    assert found == pytest.approx(reported)
    assert len(found) == 2


def test_a_quantile_is_the_latency_of_a_call_on_the_screen_the_page_and_the_report(
    tmp_path: Path,
) -> None:
    """The middle of six calls lies between two of them, neither of which it is."""
    rows: list[object] = []
    for arm, at_s in (("bf16", 0), ("fp8", 200)):
        rows.append(block(arm, 0, at_s))
        for session in range(6):
            turn = call(arm, 0, at_s + 1, f"s{session}")
            assert turn.first_ns is not None
            rows.append(replace(turn, first_ns=turn.first_ns + session * MS))
    with stored(tmp_path, rows) as connection:
        (page, _) = run(connection, Query(page="run", name="r1")).timings
    database = tmp_path / "x.duckdb"
    decision = verdict(database, "r1", setting=Setting()).decision
    reported = {
        each.name: each.estimate.value
        for each in decision.figures
        if (each.arm, each.workload) == ("bf16", "rag")
    }
    shown = summarise(database, "r1").arms[0]
    assert page.ttft_ms is not None
    assert page.token_ms is not None
    assert shown.ttft_p50_ms == page.ttft_ms[0] == reported["ttft_ms.p50"] == 112.0
    assert shown.token_p50_ms == page.token_ms[0] == reported["tpot_ms.p50"]
    assert shown.ttft_p95_ms == page.ttft_ms[1] == 115.0
