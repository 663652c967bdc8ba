from dataclasses import replace

import pytest

from agentload.model.rows import AnswerRow, Row
from agentload.run.latest import LatestSpread
from agentload.ui.progress import ENOUGH_SHARE, Failure, Fold, RunProgress, chart
from tests.store.rows import MS, S
from tests.ui.site import block, call, leg_row, run_row

WALL = 1_790_000_000 * S


def folded(*rows: Row) -> RunProgress:
    fold = Fold()
    fold.take(rows)
    found = fold.progress()
    assert found is not None
    return found


def test_a_run_that_has_not_said_what_it_is_has_no_progress() -> None:
    assert Fold().progress() is None


def test_quantiles_of_the_latest_calls_are_ranked_as_those_of_a_run_that_ended() -> None:
    calls = []
    for number in range(6):
        turn = call("r", number)
        assert turn.first_ns is not None
        calls.append(replace(turn, first_ns=turn.first_ns + number * MS))
    found = folded(run_row("r"), leg_row("r", "running"), *calls)
    assert found.arms[0].ttft_ms == LatestSpread(p50=202.0, p95=205.0)


def test_a_run_is_as_far_as_its_calls() -> None:
    calls = [call("r", number, arm=arm) for arm in ("bf16", "fp8") for number in range(2)]
    options = '{"rounds": 4, "calls": {"bf16": 8, "fp8": 8}, "job": "nightly"}'
    found = folded(
        run_row("r", options=options),
        leg_row("r", "running"),
        *calls,
        block("r", round_=0, arm="bf16"),
    )
    assert (found.share, found.round, found.rounds, found.void_blocks, found.job) == (
        0.25,
        2,
        4,
        0,
        "nightly",
    )
    assert [(arm.arm, arm.done, arm.expected, arm.failed) for arm in found.arms] == [
        ("bf16", 2, 8, ()),
        ("fp8", 2, 8, ()),
    ]
    assert found.arms[0].ttft_ms == LatestSpread(p50=200.0, p95=200.0)
    assert found.arms[0].tpot_ms == LatestSpread(p50=10.0, p95=10.0)
    assert found.arms[0].marks == ((0.2, 200.0), (1.2, 200.0))
    assert found.heard_ns == WALL + S + 1_200 * MS


def test_a_plan_that_more_calls_ended_than_it_expected_was_a_guess_and_rounds_tell() -> None:
    calls = [call("r", number) for number in range(12)]
    options = '{"rounds": 4, "calls": {"bf16": 10}}'
    found = folded(
        run_row("r", options=options),
        leg_row("r", "running"),
        *calls,
        block("r", round_=0, arm="bf16"),
    )
    assert [(arm.done, arm.expected) for arm in found.arms] == [(12, None)]
    assert found.share == 0.25


def test_without_expected_calls_rounds_tell_how_far_it_is() -> None:
    rows = (
        run_row("r", options='{"rounds": 4}'),
        leg_row("r", "running"),
        block("r", round_=0, arm="bf16"),
        block("r", round_=1, arm="fp8"),
    )
    assert folded(*rows).share == 0.5
    assert folded(run_row("r", options="{}")).share is None


def test_what_is_left_is_guessed_from_this_leg_alone() -> None:
    first = [call("r", number) for number in range(4)]
    then = [call("r", number, leg=2) for number in range(4, 6)]
    found = folded(
        run_row("r"), leg_row("r", "running"), *first, leg_row("r", "running", leg=2), *then
    )
    assert (found.leg, found.began_share, found.share) == (2, 0.25, 0.375)
    assert found.left_minutes(WALL + 10 * S) == pytest.approx(50 / 60)
    young = folded(
        run_row("r", options='{"calls": {"bf16": 1000}}'), leg_row("r", "running"), *first
    )
    assert young.share is not None
    assert young.share < ENOUGH_SHARE
    assert young.left_minutes(WALL + 10 * S) is None


def test_a_new_leg_has_a_clock_of_its_own() -> None:
    first = [call("r", number) for number in range(100, 104)]
    rebooted: list[Row] = [
        run_row("r"),
        leg_row("r", "stopped"),
        *first,
        leg_row("r", "running", leg=2, wall_ns=WALL + 500 * S),
    ]
    assert folded(*rebooted).heard_ns is None
    found = folded(*rebooted, call("r", 5, leg=2))
    assert found.heard_ns == WALL + 506 * S + 200 * MS
    assert found.arms[0].marks == ((5.2, 200.0),)


def test_the_rate_is_of_one_block_though_workers_tell_of_it_apart() -> None:
    one = [call("r", number, pair=number // 4) for number in range(8)]
    other = [call("r", number, pair=number // 4, turn=1) for number in range(8)]
    both = folded(run_row("r"), leg_row("r"), *one, *other).arms[0].tokens_per_s
    assert both == 8 * 101 / 4.2


def test_failures_are_told_the_latest_first() -> None:
    bad = [
        call(
            "r", number, status="http_error", error=f"e{number}", first_ns=None, output_tokens=None
        )
        for number in range(7)
    ]
    found = folded(run_row("r"), leg_row("r"), *bad, call("r", 9, status="not_sent", first_ns=None))
    assert found.failures[0] == Failure(
        arm="bf16", session="s6", turn=0, status="http_error", error="e6"
    )
    assert len(found.failures) == 5
    assert found.arms[0].failed == (("http_error", 7), ("not_sent", 1))
    assert found.arms[0].ttft_ms is None


def test_a_turn_that_is_tried_again_is_one_of_the_plans_calls() -> None:
    options = '{"calls": {"bf16": 4}}'
    first = call("r", 0, status="reset", first_ns=None, output_tokens=None)
    again = call("r", 1, retry_of=first.request_id)
    found = folded(run_row("r", options=options), leg_row("r"), first, again)
    assert (found.share, found.arms[0].done, found.arms[0].failed) == (0.25, 1, (("reset", 1),))


def test_calls_that_prime_or_fail_take_no_part_in_what_calls_take() -> None:
    primed = call("r", 0, prime=True, first_ns=40 * S, last_ns=50 * S, done_ns=50 * S)
    cut = call("r", 1, status="truncated", first_ns=40 * S, last_ns=50 * S, done_ns=50 * S)
    found = folded(run_row("r"), leg_row("r"), primed, cut, call("r", 2))
    assert found.arms[0].done == 2
    assert found.arms[0].ttft_ms == LatestSpread(p50=200.0, p95=200.0)
    assert found.arms[0].tpot_ms == LatestSpread(p50=10.0, p95=10.0)
    assert found.arms[0].marks == ((2.2, 200.0),)


def test_a_long_run_is_drawn_with_marks_spread_over_all_of_it() -> None:
    found = folded(run_row("r"), leg_row("r"), *(call("r", number) for number in range(2_000)))
    seconds = [second for second, _ in found.arms[0].marks]
    assert 150 <= len(seconds) <= 300
    assert (seconds[0] < 20, seconds[-1] > 1_980) == (True, True)
    drawn = chart(found)
    assert drawn is not None
    assert drawn.x.label.startswith("minutes")


def test_answers_of_an_evaluation_count_but_checks_inside_a_replay_do_not() -> None:
    answer = {
        "run_id": "r",
        "arm": "a",
        "task": "needle",
        "item": "1",
        "context_tokens": 10,
        "depth": None,
        "repetition": 0,
        "score": None,
        "answer": "",
    }
    # a table of test values
    asked = [AnswerRow(**answer, right=right) for right in (True, False, None)]  # type: ignore[arg-type]
    found = folded(run_row("r", options="{}"), leg_row("r"), *asked)
    assert [(arm.arm, arm.done, arm.failed) for arm in found.arms] == [("a", 3, (("failed", 1),))]
    check = AnswerRow(**answer, right=True, request_id="r-1")  # type: ignore[arg-type]  # as above
    assert folded(run_row("r"), leg_row("r"), check).arms == ()
