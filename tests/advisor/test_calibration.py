"""A reduced run of the report card; `python -m tests.advisor.calibration` makes the whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.verdict import LegState
from tests.advisor.calibration import Promise, broken, main
from tests.advisor.grading import Cell, crossed, graded, is_opposite, is_wrong, looked

PLAIN = Cell(world="plain", starts="one start", size="six pairs")


@pytest.mark.parametrize(
    "world",
    [
        "plain",
        *(
            pytest.param(world, marks=pytest.mark.slow)
            for world in (
                "wander of one arm",
                "starts +-3%",
                "starts of twice the prior",
                "starts in two modes",
            )
        ),
    ],
)
@pytest.mark.parametrize(
    "starts", ["one start", pytest.param("a start a pair", marks=pytest.mark.slow)]
)
def test_the_advisor_is_seldom_wrong_in_worlds_whose_truth_is_known(
    world: str, starts: str
) -> None:
    counts = graded(Cell(world=world, starts=starts, size="planned"), 40, 1).counts
    apart = starts == "one start" and world in ("starts of twice the prior", "starts in two modes")
    assert {
        truth: count.wrong for truth, count in counts.items() if count.wrong > 5 and not apart
    } == {}
    assert {
        truth: count.bare_wrong for truth, count in counts.items() if count.bare_wrong > 5
    } == {}
    assert all(count.covered >= 32 for count in counts.values() if not apart)


def test_a_start_for_each_pair_settles_two_margins_at_the_size_that_is_planned_for_it() -> None:
    counts = graded(
        Cell(world="starts +-3%", starts="a start a pair", size="planned"), 60, 2
    ).counts
    assert {
        truth for truth, count in counts.items() if abs(truth) >= 2 and count.decisive < 48
    } == set()


def test_looking_six_times_is_not_being_wrong_six_times() -> None:
    assert looked(Cell(starts="a start a pair"), 200, 3).wrong <= 12


def test_break_even_sets_hold_the_crossing_of_servers_that_were_started_once() -> None:
    found = crossed(Cell(crossing="starts +-3%"), 60, 4)
    assert found.covered >= 49
    assert found.decisive > 0


@pytest.mark.parametrize(
    ("said", "wrong", "right", "opposite"),
    [
        ("yes", (-4.0, 0.0, 0.9, 1.0), (1.1, 4.0), (-0.5,)),
        ("no", (-1.0, 0.0, 4.0), (-1.1, -4.0), (0.5,)),
        ("equal", (-2.0, 2.0), (-1.9, 0.0, 1.9), ()),
        ("unclear", (), (-4.0, 0.0, 4.0), ()),
    ],
)
def test_between_one_and_two_margins_both_answers_are_right(
    said: LegState, wrong: tuple[float, ...], right: tuple[float, ...], opposite: tuple[float, ...]
) -> None:
    assert all(is_wrong(said, truth) for truth in wrong)
    assert not any(is_wrong(said, truth) for truth in right)
    assert all(is_opposite(said, truth) for truth in opposite)


def test_a_promise_is_broken_by_what_is_surely_too_much_and_not_by_one_cell_in_many() -> None:
    def cells(hits: int, count: int) -> list[Promise]:
        return [
            Promise(name="wrong", cell=str(place), hits=hits, draws=100, most=0.05)
            for place in range(count)
        ]

    assert broken(cells(10, 1)) == cells(10, 1)
    assert broken(cells(10, 20)) == []
    assert len(broken(cells(25, 20))) == 20
    assert cells(10, 1)[0].least > 0.05 > cells(9, 1)[0].least


@pytest.mark.slow
def test_the_table_has_a_line_for_every_size_and_the_program_says_whether_a_promise_broke() -> None:
    written: list[str] = []
    assert main(["--draws", "3", "--world", "plain", "--processes", "1"], written.append) == 0
    assert "".join(written).count("| plain |") == 3
    assert "broken promises: 0" in written[-1]


@pytest.mark.slow
def test_a_card_that_was_interrupted_continues_with_the_cells_that_are_missing(
    tmp_path: Path,
) -> None:
    into = tmp_path / "card.jsonl"
    options = ["--draws", "3", "--world", "plain", "--processes", "1", "--into", str(into)]
    first: list[str] = []
    main(options, first.append)
    lines = into.read_text(encoding="utf-8").split("\n")
    into.write_text("\n".join(lines[:3])[:-1], encoding="utf-8")
    again: list[str] = []
    main(options, again.append)
    assert again == first
    other: list[str] = []
    main([*options, "--seed", "8"], other.append)
    assert other[0] != first[0]
    assert len(into.read_text(encoding="utf-8").split("\n")) == 3 + 5 + 6


def test_worlds_of_equal_names_and_seeds_are_equal() -> None:
    assert graded(PLAIN, 3, 5) == graded(PLAIN, 3, 5)
