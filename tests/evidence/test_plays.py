from collections.abc import Sequence
from pathlib import Path

import pytest

from agentload.evidence.plays import attempts
from agentload.evidence.view import run_view
from agentload.store.runs import summary
from tests.evidence.runs import S, arm, block, call, fingerprint, leg, run, stored


def fates(folder: Path, rows: Sequence[object]) -> list[tuple[str, int, str | None]]:
    with stored(folder, rows) as connection:
        return [(play.arm, play.pair, play.left_out) for play in run_view(connection, "r1").plays]


@pytest.mark.parametrize(
    ("what", "rows", "expected"),
    [
        (
            "whole pairs count",
            [block("bf16", 0, 0), block("fp8", 0, 200)],
            [("bf16", 0, None), ("fp8", 0, None)],
        ),
        (
            "what voids one half voids the other",
            [block("bf16", 0, 0, void="clock drop"), block("fp8", 0, 200)],
            [("bf16", 0, "clock drop"), ("fp8", 0, "clock drop")],
        ),
        (
            "a pair played again under another salt counts, its first try does not",
            [
                block("bf16", 0, 0, void="restarted"),
                block("fp8", 0, 200),
                block("fp8", 0, 400, salt="0~1"),
                block("bf16", 0, 600, salt="0~1"),
            ],
            [
                ("bf16", 0, "restarted"),
                ("fp8", 0, "restarted"),
                ("fp8", 0, None),
                ("bf16", 0, None),
            ],
        ),
        (
            "half a pair compares nothing",
            [block("bf16", 0, 0), block("fp8", 0, 200), block("bf16", 1, 400)],
            [("bf16", 0, None), ("fp8", 0, None), ("bf16", 1, "played on one arm alone")],
        ),
        (
            "an unfinished half spoils the pair",
            [block("bf16", 0, 0, ended_ns=None), block("fp8", 0, 200)],
            [("bf16", 0, "not played to its end"), ("fp8", 0, "not played to its end")],
        ),
        (
            "warm-up is no evidence",
            [block("bf16", 0, 0, warmup=True), block("fp8", 0, 200, warmup=True)],
            [("bf16", 0, "warm-up"), ("fp8", 0, "warm-up")],
        ),
    ],
)
def test_which_plays_are_evidence(
    what: str, rows: Sequence[object], expected: object, tmp_path: Path
) -> None:
    assert fates(tmp_path, rows) == expected, what


def test_the_only_arm_of_a_run_needs_no_partner(tmp_path: Path) -> None:
    rows = [run(), leg(), arm("bf16", 0), block("bf16", 0, 0)]
    with stored(tmp_path, rows, described=False) as connection:
        assert [play.left_out for play in run_view(connection, "r1").plays] == [None]


def test_plays_are_ordered_by_wall_clock_across_legs(tmp_path: Path) -> None:
    rows = [
        leg(2),
        block("bf16", 0, 500),
        block("fp8", 0, 700),
        block("fp8", 1, 0, leg=2),
        block("bf16", 1, 200, leg=2),
    ]
    with stored(tmp_path, rows) as connection:
        found = run_view(connection, "r1").plays
    assert [(play.number, play.leg, play.arm, play.start_s) for play in found] == [
        (0, 1, "bf16", 0.0),
        (1, 1, "fp8", 200.0),
        (2, 2, "fp8", 9500.0),
        (3, 2, "bf16", 9700.0),
    ]


def test_a_server_that_was_started_again_begins_a_new_restart_of_its_own_arm(
    tmp_path: Path,
) -> None:
    rows = [
        *(fingerprint(name, 0, process_start_s=100.0) for name in ("bf16", "fp8")),
        fingerprint("fp8", 350, process_start_s=440.0),
        fingerprint("bf16", 351, process_start_s=100.0),
        *(
            block(name, pair, at)
            for name, pair, at in (
                ("bf16", 0, 0),
                ("fp8", 0, 200),
                ("fp8", 1, 400),
                ("bf16", 1, 600),
            )
        ),
    ]
    with stored(tmp_path, rows) as connection:
        assert [(play.arm, play.restart) for play in run_view(connection, "r1").plays] == [
            ("bf16", 0),
            ("fp8", 0),
            ("fp8", 1),
            ("bf16", 0),
        ]


def test_a_server_that_comes_back_after_another_answered_questions_is_the_start_that_it_was(
    tmp_path: Path,
) -> None:
    rows = [
        *(
            fingerprint("fp8", at, process_start_s=start)
            for at, start in ((0, 100.0), (150, 440.0), (180, 100.0), (350, 900.0))
        ),
        *(
            block(name, pair, at)
            for name, pair, at in (("bf16", 0, 0), ("fp8", 0, 10), ("fp8", 1, 200), ("fp8", 2, 400))
        ),
    ]
    with stored(tmp_path, rows) as connection:
        assert [play.restart for play in run_view(connection, "r1").plays if play.arm == "fp8"] == [
            0,
            0,
            2,
        ]


def test_blocks_keep_their_bounds(tmp_path: Path) -> None:
    with stored(tmp_path, [block("bf16", 0, 3), block("fp8", 0, 200)]) as connection:
        first = run_view(connection, "r1").plays[0]
    assert (first.started_ns, first.drain_ns, first.ended_ns) == (3 * S, 53 * S, 103 * S)


def test_a_play_that_never_ended_takes_no_calls_of_the_next_one_of_its_pair(tmp_path: Path) -> None:
    rows = [
        block("bf16", 0, 0, ended_ns=None),
        call("bf16", 0, 1),
        block("bf16", 0, 400, salt="0~1"),
        call("bf16", 0, 401),
    ]
    with stored(tmp_path, rows) as connection:
        found = attempts(connection, "r1", run_view(connection, "r1").plays)
        blocks = summary(connection, "r1").blocks
    assert sorted(found.select("play", "start_s").iter_rows()) == [(0, 1.03), (1, 401.03)]
    assert [each.calls for each in blocks] == [1, 1]
